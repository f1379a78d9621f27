//! `nvidia-shim explain`: what would a container with this `config.json` get, and why?
//!
//! It asks what the shim asks and changes nothing. Its options, output and exit codes are a
//! contract that programs rely on: see [`Explanation`].

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use nvidia_oci::{
    Bundle, Config, ConfigSource, Error, GeneratedFile, Handler, Host, Image, Inquiry, Link, Need,
    Outcome, Plan, Report, Spec, policy, request,
};
use serde::Serialize;
use serde_json::Value;

/// Tell what a container would get, and why; change nothing
///
/// Exit code: 0 the container would start, with a GPU or because it asks for none; 3 it would be
/// refused; 2 wrong arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Bundle directory: its config.json, and the image in its root filesystem
    #[arg(long, value_name = "DIR", required_unless_present = "spec", conflicts_with = "spec")]
    bundle: Option<PathBuf>,
    /// OCI spec on its own; nothing is known of the image
    #[arg(long, value_name = "FILE")]
    spec: Option<PathBuf>,
    /// nvidia or nvidia-cdi
    #[arg(long, value_parser = handler)]
    handler: Handler,
    /// config.toml; without it the node's own, or none if --host-root is given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory that is looked at as the root of the host
    #[arg(long, value_name = "DIR")]
    host_root: Option<PathBuf>,
    /// Setting that overrides config.toml, such as library-path=host; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = crate::setting)]
    set: Vec<(String, String)>,
    /// What to print
    #[arg(long, value_enum, default_value_t = Output::Report)]
    output: Output,
    /// The same as --output json
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// The record of the decision, as text
    Report,
    /// The OCI spec, edited; as it is if nothing is edited
    Spec,
    /// All of it, as one JSON object
    Json,
}

/// The answer. Its JSON form is a contract; host paths in it are the host's own, without the
/// prefix of `--host-root`.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    pub outcome: Verdict,
    /// `NVS-101`; only of a refusal.
    pub code: Option<&'static str>,
    /// One line; only of a refusal.
    pub message: Option<String>,
    /// The OCI spec, edited or as it was; null if it is not JSON.
    pub spec: Value,
    pub fixups: FixupView,
    pub report: Report,
}

/// What becomes of the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Untouched,
    Edited,
    Refused,
}

/// What would change inside the root filesystem.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FixupView {
    pub links: Vec<Link>,
    pub library_dirs: Vec<PathBuf>,
    /// Files that are written, as the driver came without.
    pub files: Vec<GeneratedFile>,
    /// Where the image has CUDA's compatibility libraries that go before the driver's.
    pub cuda_compat: Option<PathBuf>,
    /// Whether the driver's libraries are told to make no device nodes.
    pub mask_params: bool,
    /// Whether EGL and Vulkan are told to use only the GPUs that are there; null if not.
    pub app_profile: Option<Value>,
}

/// What to explain.
#[derive(Clone, Debug)]
pub struct Question {
    /// The content of `config.json`, and what to call it.
    pub config_json: Vec<u8>,
    pub place: PathBuf,
    /// The bundle, for a look at its image.
    pub bundle: Option<PathBuf>,
    pub handler: Handler,
    pub settings: ConfigSource,
    /// Beats what the settings say.
    pub host_root: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let question = match Question::of(args) {
        Ok(question) => question,
        Err(error) => {
            crate::complain(&error);
            return Ok(ExitCode::from(2));
        }
    };
    let answer = question.explain();
    print(if args.json { Output::Json } else { args.output }, &question, &answer)?;
    Ok(ExitCode::from(if answer.outcome == Verdict::Refused { 3 } else { 0 }))
}

fn print(output: Output, question: &Question, answer: &Explanation) -> anyhow::Result<()> {
    let text = match (output, &answer.message) {
        (Output::Json, _) => format!("{}\n", serde_json::to_string_pretty(answer)?).into_bytes(),
        // Of a spec that is not JSON there is nothing to report.
        (Output::Report, Some(message)) if answer.spec.is_null() => {
            format!("refused   {message}\n").into_bytes()
        }
        (Output::Report, Some(message)) => {
            format!("refused   {message}\n{}", answer.report).into_bytes()
        }
        (Output::Report, None) => {
            format!("outcome   {}\n{}", answer.outcome.word(), answer.report).into_bytes()
        }
        (Output::Spec, message) => {
            if let Some(message) = message {
                crate::complain(&anyhow::Error::msg(message.clone()));
            }
            match answer.outcome {
                Verdict::Edited => Spec::new(answer.spec.clone()).to_json(),
                Verdict::Untouched | Verdict::Refused => question.config_json.clone(),
            }
        }
    };
    match io::stdout().write_all(&text) {
        // Whoever reads no further has what they wanted.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

impl Question {
    fn of(args: &Args) -> anyhow::Result<Self> {
        let mut config = Config::default();
        for (key, value) in &args.set {
            if let Err(what) = config.set(key, value) {
                bail!("--set {key}={value}: {what}");
            }
        }
        if let Some(file) = &args.config {
            fs::File::open(file).with_context(|| format!("--config {}", file.display()))?;
        }
        let (config_json, place) = match (&args.bundle, &args.spec) {
            (Some(bundle), _) => (Bundle::read(bundle)?, bundle.join("config.json")),
            (None, Some(spec)) => {
                let json = fs::read(spec).with_context(|| format!("--spec {}", spec.display()))?;
                (json, spec.clone())
            }
            (None, None) => bail!("one of --bundle and --spec is needed"),
        };
        // Settings of the machine that explain runs on say nothing of another host.
        let default_path = match args.host_root {
            Some(_) => None,
            None => Some(Config::default_file(|name| std::env::var(name).ok())),
        };
        Ok(Self {
            config_json,
            place,
            bundle: args.bundle.clone(),
            handler: args.handler,
            settings: ConfigSource {
                path: args.config.clone(),
                default_path,
                table: None,
                table_file: None,
                set: args.set.clone(),
            },
            host_root: args.host_root.as_deref().map(std::path::absolute).transpose()?,
        })
    }

    /// Answers; a refusal is an answer.
    pub fn explain(&self) -> Explanation {
        let mut report = Report::of(self.handler);
        let spec = match Spec::parse(&self.config_json, &self.place) {
            Ok(spec) => spec,
            Err(error) => return Explanation::refused(&error, Value::Null, report),
        };
        match self.decide(&spec, &mut report) {
            Ok(answer) => answer,
            Err(error) => {
                let error = match &report.request {
                    Some(source) => error.asked_by(source),
                    None => error,
                };
                Explanation::refused(&error, spec.value().clone(), report)
            }
        }
    }

    /// `known` is what the report of a refusal tells.
    fn decide(&self, spec: &Spec, known: &mut Report) -> Result<Explanation, Error> {
        // Whoever asks for nothing is not stopped by settings that cannot be read.
        if !request::asks(&self.config_json, &self.settings)? {
            return Ok(Explanation::untouched(spec, known.clone()));
        }
        known.request = policy::asker(spec);
        let (mut config, warnings) = Config::load(&self.settings)?;
        known.warnings.clone_from(&warnings);
        config.do_without_hooks();
        let judgement = policy::judge(spec, &config, self.handler)?;
        *known = Report::of_judgement(self.handler, &judgement);
        known.warnings.splice(0..0, warnings);
        if let Some(root) = &self.host_root {
            config.host_root.clone_from(root);
        }
        let host = Host::new(&config.host_root);
        let image = self.image(spec, &mut known.warnings)?;
        let Some(request) = judgement.request else {
            return Ok(Explanation::untouched(spec, known.clone()));
        };
        let inquiry = Inquiry::read(&host, &config, self.handler, spec, request)?;
        known.warnings.extend(inquiry.needs(&config, self.handler)?.iter().map(promise));
        let mut answer = match inquiry.plan(&host, &config, self.handler, &image, spec)? {
            Outcome::Untouched(report) => Explanation::untouched(spec, *report),
            Outcome::Edited(plan) => Explanation::edited(spec, *plan)?,
        };
        let warnings = std::mem::take(&mut answer.report.warnings);
        answer.report.warnings = known.warnings.drain(..).chain(warnings).collect();
        Ok(answer)
    }

    fn image(&self, spec: &Spec, warnings: &mut Vec<String>) -> Result<Image, Error> {
        let Some(bundle) = &self.bundle else { return Ok(Image::default()) };
        let root = spec.root_path().map(|root| bundle.join(root));
        if !root.is_some_and(|root| root.is_dir()) {
            warnings.push("the bundle has no root filesystem: the image is not known".to_owned());
            return Ok(Image::default());
        }
        nvidia_hook::facts(nvidia_hook::Look::open(&[], bundle, spec)?.rootfs())
    }
}

impl Explanation {
    fn untouched(spec: &Spec, report: Report) -> Self {
        Self::new(Verdict::Untouched, spec.value().clone(), report)
    }

    fn edited(spec: &Spec, plan: Plan) -> Result<Self, Error> {
        let mut edited = spec.clone();
        plan.edits.apply(&mut edited)?;
        let mut answer = Self::new(Verdict::Edited, edited.value().clone(), plan.report);
        answer.fixups.links = plan.fixups.links;
        answer.fixups.library_dirs = plan.fixups.library_dirs;
        answer.fixups.files = plan.fixups.files;
        answer.fixups.cuda_compat = plan.fixups.cuda_compat.map(|compat| compat.directory);
        answer.fixups.mask_params = plan.fixups.mask_params;
        answer.fixups.app_profile = plan.fixups.application_profile.then(|| true.into());
        Ok(answer)
    }

    fn refused(error: &Error, spec: Value, report: Report) -> Self {
        let (code, message) = (Some(error.code().id()), Some(error.to_string()));
        Self { code, message, ..Self::new(Verdict::Refused, spec, report) }
    }

    fn new(outcome: Verdict, spec: Value, report: Report) -> Self {
        Self { outcome, code: None, message: None, spec, fixups: FixupView::default(), report }
    }
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Untouched => "untouched",
            Self::Edited => "edited",
            Self::Refused => "refused",
        }
    }
}

/// What the shim would do before it decides.
fn promise(need: &Need) -> String {
    match need {
        Need::Module(module) => format!("the shim would first load kernel module {module}"),
        Need::Wake { minor, .. } => {
            format!("the shim would first open /dev/nvidia{minor} to learn the UUID of its GPU")
        }
    }
}

fn handler(name: &str) -> Result<Handler, String> {
    Handler::parse(name).ok_or_else(|| "the handlers are nvidia and nvidia-cdi".to_owned())
}

#[cfg(test)]
mod tests;
