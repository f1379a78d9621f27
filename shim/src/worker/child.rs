//! The worker's own side: limits first, then the one job, step by step; the bundle is written
//! last, and nothing that can fail comes after it.

use std::io::{self, Read, Write};
use std::process::ExitCode;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nvidia_hook::{Look, RootfsMount};
use nvidia_oci::{
    Bundle, Code, Config, ConfigSource, Edits, Error, Handler, Host, Inquiry, Outcome, Request,
    Result, policy,
};

use super::job::{Answer, Job};
use crate::executable;
use crate::prepare::HOST_DEADLINE;
use crate::program::Program;

const JOB_LIMIT: u64 = 4 << 20;

/// What even a large image and driver do not need; soft and hard.
const LIMITS: &[(Resource, u64)] = &[
    (Resource::RLIMIT_AS, 2 << 30),
    (Resource::RLIMIT_CPU, 20),
    (Resource::RLIMIT_NOFILE, 1024),
    (Resource::RLIMIT_FSIZE, 256 << 20),
    (Resource::RLIMIT_CORE, 0),
];

/// The log and the panic hook are installed, the working directory is the caller's; everything
/// else comes on descriptors.
pub(crate) fn run(_program: &Program) -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The relay reads it as the reason of our end.
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> io::Result<()> {
    set_pdeathsig(Signal::SIGKILL)?;
    for (resource, limit) in LIMITS {
        setrlimit(*resource, *limit, *limit)?;
    }
    let mut job = Vec::new();
    io::stdin().take(JOB_LIMIT).read_to_end(&mut job)?;
    let job: Job = serde_json::from_slice(&job)?;
    let answer =
        carry_out(&job).unwrap_or_else(|refusal| Answer::Refused { message: refusal.to_string() });
    io::stdout().write_all(&serde_json::to_vec(&answer)?)
}

/// Plans and applies.
fn carry_out(job: &Job) -> Result<Answer> {
    let handler = Handler::parse(&job.handler).ok_or_else(|| {
        Error::new(Code::WorkerCrashed, format!("there is no handler {:?}", job.handler))
    })?;
    let bundle = Bundle::open(&job.bundle)?;
    let (mut config, mut warnings) =
        Config::load(&source(job)).map_err(|error| match policy::asker(bundle.spec()) {
            Some(source) => error.asked_by(&source),
            None => error,
        })?;
    if !job.before_runc {
        config.do_without_hooks();
    }
    let judgement = policy::judge(bundle.spec(), &config, handler)?;
    warnings.extend(judgement.warnings);
    let Some(request) = judgement.request else { return Ok(Answer::Untouched { warnings }) };
    let source = request.source.to_string();
    prepare(job, &config, handler, &bundle, request, warnings)
        .map_err(|error| error.asked_by(&source))
}

fn prepare(
    job: &Job,
    config: &Config,
    handler: Handler,
    bundle: &Bundle,
    request: Request,
    mut warnings: Vec<String>,
) -> Result<Answer> {
    let mut host = Host::new(&config.host_root);
    let mut inquiry = Inquiry::read(&host, config, handler, bundle.spec(), request)?;
    let needs = inquiry.needs(config, handler)?;
    if !needs.is_empty() {
        nvidia_hook::host::satisfy(&host, &needs, HOST_DEADLINE)?;
        host = host.afresh();
        inquiry.read_again(&host, config, handler, bundle.spec())?;
    }
    let mounts: Vec<RootfsMount> = job.rootfs.iter().cloned().map(Into::into).collect();
    let look = Look::open(&mounts, &job.bundle, bundle.spec())?;
    let image = nvidia_hook::facts(look.rootfs())?;
    let plan = match inquiry.plan(&host, config, handler, &image, bundle.spec())? {
        Outcome::Untouched(report) => {
            warnings.extend(report.warnings);
            return Ok(Answer::Untouched { warnings });
        }
        Outcome::Edited(plan) => plan,
    };
    let standing = plan.standing(&host)?;
    for node in &plan.missing_nodes {
        nvidia_hook::host::make_node(&host, node)?;
    }
    let edits = plan.edits.clone().on(&host);
    let mut edited = bundle.spec().clone();
    edits.apply(&mut edited)?;
    let prepared = look.apply(&image, &plan.fixups, &edits, &edited)?;
    warnings.extend(prepared.warnings);
    if let Some(by_hook) = prepared.by_hook {
        let program = executable::beside(nvidia_hook::PROGRAM);
        if executable::is_for_container(&program, edited.in_user_namespace()) {
            let hooks = vec![by_hook.hook(&program)];
            Edits { hooks, ..Edits::default() }.apply(&mut edited)?;
        } else {
            warnings.extend(by_hook.left_out(&program));
        }
    }
    let rootfs = prepared.mounts.into_iter().map(Into::into).collect();
    let summary = plan.report.line();
    plan.confirm(&host, standing.as_ref())?;
    warnings.extend(plan.report.warnings);
    bundle.write(&edited)?;
    Ok(Answer::Edited { rootfs, warnings, summary })
}

fn source(job: &Job) -> ConfigSource {
    ConfigSource {
        path: job.config.clone(),
        default_path: job.default_config.clone(),
        table: job.table.clone(),
        table_file: job.table_file.clone(),
        set: job.set.clone(),
    }
}
