//! `nvidia-shim cdi generate`: a CDI spec of what is there, with the flags of
//! `nvidia-ctk cdi generate`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::{Args as _, FromArgMatches};
use nvidia_oci::cdi::{
    CSV_FILES, CsvFiles, GenerateMode, Generated, GeneratedHook, Hooks, NameStrategy, Recipe, Spec,
};
use nvidia_oci::{Config, ConfigSource, Host};

use super::{host, node_config, output, warn, watch};

const HOOK: &str = "nvidia-cdi-hook";
const PROGRAM_DIRS: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
const FEATURE_FLAGS: &str = "nvidia-container-runtime.modes.jit-cdi.nvcdi-feature-flags";

/// How long modules and sleeping GPUs may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Write a CDI spec of what is there
///
/// Flags and their variables are those of nvidia-ctk cdi generate.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// File to write, in one step; .json, .yaml and .yml set the format
    #[arg(long, value_name = "FILE", env = "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH")]
    output: Option<PathBuf>,
    /// Format where the name of the file does not set it
    #[arg(long, value_enum, default_value_t = Format::Yaml, env = "NVIDIA_CTK_CDI_GENERATE_OUTPUT_FORMAT")]
    format: Format,
    /// What is described: auto, nvml, management, gds, mofed, gdrcopy, nvswitch, imex, wsl, csv
    #[arg(
        long,
        alias = "discovery-mode",
        value_name = "MODE",
        default_value = "auto",
        value_parser = mode,
        env = "NVIDIA_CTK_CDI_GENERATE_MODE"
    )]
    mode: GenerateMode,
    /// Directory that the driver is installed in; without it config.toml's, or where it is found
    #[arg(long, value_name = "DIR", value_parser = root, env = "NVIDIA_CTK_DRIVER_ROOT")]
    driver_root: Option<PathBuf>,
    /// Directory that dev with the device nodes is in
    #[arg(long, value_name = "DIR", value_parser = root, env = "NVIDIA_CTK_DEV_ROOT")]
    dev_root: Option<PathBuf>,
    /// How GPUs are called: index, uuid, type-index; may be repeated
    #[arg(
        long,
        alias = "device-name-strategies",
        value_name = "STRATEGY",
        default_values = ["index", "uuid"],
        value_delimiter = ',',
        value_parser = strategy,
        env = "NVIDIA_CTK_CDI_GENERATE_DEVICE_NAME_STRATEGIES"
    )]
    device_name_strategy: Vec<NameStrategy>,
    /// Device to describe, as nvidia-smi names it, or all, or none; may be repeated
    #[arg(
        long,
        aliases = ["device-ids", "device", "devices"],
        value_name = "ID",
        default_value = "all",
        value_delimiter = ',',
        env = "NVIDIA_CTK_CDI_GENERATE_DEVICE_IDS"
    )]
    device_id: Vec<String>,
    /// No device all beside the others
    #[arg(long, env = "NVIDIA_CTK_CDI_GENERATE_NO_ALL_DEVICE")]
    no_all_device: bool,
    /// Directory of graphics' files, in place of the usual ones; may be repeated
    #[arg(
        long,
        alias = "config-search-paths",
        value_name = "DIR",
        value_delimiter = ',',
        env = "NVIDIA_CTK_CDI_GENERATE_CONFIG_SEARCH_PATHS"
    )]
    config_search_path: Vec<PathBuf>,
    /// Directory of libraries that CSV files name; may be repeated
    #[arg(
        long,
        alias = "library-search-paths",
        value_name = "DIR",
        value_delimiter = ',',
        env = "NVIDIA_CTK_CDI_GENERATE_LIBRARY_SEARCH_PATHS"
    )]
    library_search_path: Vec<PathBuf>,
    /// Program of the hooks; without it nvidia-cdi-hook where it is installed
    #[arg(
        long,
        aliases = ["nvidia-ctk-path", "nvidia-hook-path"],
        value_name = "FILE",
        env = "NVIDIA_CTK_CDI_HOOK_PATH"
    )]
    nvidia_cdi_hook_path: Option<PathBuf>,
    /// ldconfig for NVIDIA's hook; ours needs none
    #[arg(long, value_name = "FILE", env = "NVIDIA_CTK_CDI_GENERATE_LDCONFIG_PATH")]
    ldconfig_path: Option<PathBuf>,
    /// Vendor of the devices; without it nvidia.com, or management.nvidia.com
    #[arg(long, alias = "cdi-vendor", value_name = "NAME", env = "NVIDIA_CTK_CDI_GENERATE_VENDOR")]
    vendor: Option<String>,
    /// Class of the devices; without it gpu, or that of the mode
    #[arg(long, alias = "cdi-class", value_name = "NAME", env = "NVIDIA_CTK_CDI_GENERATE_CLASS")]
    class: Option<String>,
    /// List of files of Tegra; may be repeated
    #[arg(
        long = "csv.file",
        value_name = "FILE",
        default_values = CSV_FILES,
        value_delimiter = ',',
        env = "NVIDIA_CTK_CDI_GENERATE_CSV_FILES"
    )]
    csv_file: Vec<PathBuf>,
    /// Pattern of paths in them that do not count; may be repeated
    #[arg(
        long = "csv.ignore-pattern",
        value_name = "PATTERN",
        value_delimiter = ',',
        env = "NVIDIA_CTK_CDI_GENERATE_CSV_IGNORE_PATTERNS"
    )]
    csv_ignore_pattern: Vec<String>,
    /// Hook to leave out, or all; may be repeated
    #[arg(
        long,
        alias = "disable-hooks",
        value_name = "HOOK",
        value_delimiter = ',',
        env = "NVIDIA_CTK_CDI_GENERATE_DISABLED_HOOKS"
    )]
    disable_hook: Vec<String>,
    /// Hook to keep all the same; may be repeated
    #[arg(
        long,
        alias = "enable-hooks",
        value_name = "HOOK",
        value_delimiter = ',',
        env = "NVIDIA_CTK_CDI_GENERATE_ENABLED_HOOKS"
    )]
    enable_hook: Vec<String>,
    /// NVIDIA's feature flag, such as no-additional-gids-for-device-nodes, which podman 4.3 needs;
    /// may be repeated
    #[arg(
        long,
        alias = "feature-flags",
        value_name = "FLAG",
        value_delimiter = ',',
        env = "NVIDIA_CTK_CDI_GENERATE_FEATURE_FLAGS"
    )]
    feature_flag: Vec<String>,
    /// Directory that is looked at as the root of the host; paths are those of the host
    #[arg(long, value_name = "DIR")]
    host_root: Option<PathBuf>,
    /// First load kernel modules, make device nodes and learn UUIDs that are missing, as the start
    /// of a container does
    #[arg(long)]
    prepare: bool,
    /// Go on, and write the file again when driver, devices or MIG devices change
    #[arg(long, requires = "output")]
    watch: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Json,
    Yaml,
}

/// Reads the flags of this command, without its name.
///
/// # Errors
/// One of them is wrong.
pub fn parse(words: &[String]) -> Result<Args, clap::Error> {
    let command = Args::augment_args(clap::Command::new("generate").no_binary_name(true));
    Args::from_arg_matches(&command.try_get_matches_from(words)?)
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.watch {
        watch::run(args)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Generated { spec, warnings } = args.generate()?;
    warn(warnings);
    let text = args.text(&spec)?;
    match &args.output {
        Some(path) => drop(output::replace(path, &text)?),
        None => output::print(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    /// The spec that they ask for.
    ///
    /// # Errors
    /// There is nothing to describe, or something is missing.
    pub fn generate(&self) -> anyhow::Result<Generated> {
        let (config, mut warnings) = self.config()?;
        let recipe = self.recipe()?;
        if self.prepare {
            let needs = recipe.needs(&self.host()?, &config)?;
            // What cannot be described without is refused below.
            let unmet = nvidia_hook::host::satisfy(&self.host()?, &needs, PATIENCE).err();
            warnings.extend(unmet.map(|error| error.to_string()));
            for node in recipe.missing_nodes(&self.host()?, &config)? {
                nvidia_hook::host::make_node(&self.host()?, &node)?;
            }
        }
        let mut generated = recipe.generate(&self.host()?, &config)?;
        warnings.append(&mut generated.warnings);
        Ok(Generated { warnings, ..generated })
    }

    pub(super) fn host(&self) -> anyhow::Result<Host> {
        host(self.host_root.as_deref())
    }

    pub(super) fn output(&self) -> Option<&Path> {
        self.output.as_deref()
    }

    pub(super) fn text(&self, spec: &Spec) -> anyhow::Result<String> {
        let extension = self.output.as_deref().and_then(Path::extension);
        let format = match extension.and_then(|it| it.to_str()) {
            Some("json") => Format::Json,
            Some("yaml" | "yml") => Format::Yaml,
            _ => self.format,
        };
        Ok(match format {
            Format::Json => spec.to_json()?,
            Format::Yaml => spec.to_yaml()?,
        })
    }

    /// Of the node's settings only where the driver is: the others are for containers.
    fn config(&self) -> anyhow::Result<(Config, Vec<String>)> {
        let node = node_config(self.host_root.as_deref())?;
        let set = vec![(FEATURE_FLAGS.to_owned(), self.feature_flag.join(","))];
        let (mut config, warnings) =
            Config::load(&ConfigSource { set, ..ConfigSource::default() })?;
        config.driver_root = self.driver_root.clone().or(node.driver_root);
        config.dev_root = self.dev_root.clone().or(node.dev_root);
        config.data_dirs.clone_from(&self.config_search_path);
        Ok((config, warnings))
    }

    fn recipe(&self) -> anyhow::Result<Recipe> {
        let kind = match (&self.vendor, &self.class) {
            (None, None) => self.mode.kind(),
            (vendor, class) => {
                let of = |name: &Option<String>, default: &str| {
                    name.clone().unwrap_or_else(|| default.to_owned())
                };
                format!("{}/{}", of(vendor, "nvidia.com"), of(class, "gpu"))
            }
        };
        let devices = self.device_id.iter().filter(|id| *id != "all").cloned().collect();
        Ok(Recipe {
            mode: self.mode,
            kind,
            names: self.device_name_strategy.clone(),
            devices,
            all: !self.no_all_device,
            hooks: self.hooks()?,
            csv: CsvFiles {
                files: self.csv_file.clone(),
                ignored: self.csv_ignore_pattern.clone(),
            },
            library_dirs: self.library_search_path.clone(),
        })
    }

    fn hooks(&self) -> anyhow::Result<Hooks> {
        let named = |names: &[String]| -> anyhow::Result<Vec<GeneratedHook>> {
            let hook = |name: &String| match GeneratedHook::parse(name) {
                Some(hook) => Ok(hook),
                None => {
                    let known: Vec<_> = GeneratedHook::all().map(|(name, _)| name).collect();
                    bail!("there is no hook {name:?}; there are {}", known.join(", "))
                }
            };
            names.iter().map(hook).collect()
        };
        let enabled = named(&self.enable_hook)?;
        let mut disabled = match self.disable_hook.iter().any(|name| name == "all") {
            true => GeneratedHook::all().map(|(_, hook)| hook).collect(),
            false => named(&self.disable_hook)?,
        };
        disabled.retain(|hook| !enabled.contains(hook));
        let given = self.nvidia_cdi_hook_path.as_deref().unwrap_or(Path::new(HOOK));
        let program = program(given, &self.host()?);
        Ok(Hooks { program, ldconfig: self.ldconfig_path.clone(), disabled })
    }
}

/// Where the program is that is called so, or where it will be.
fn program(name: &Path, host: &Host) -> PathBuf {
    if name.is_absolute() {
        return name.to_owned();
    }
    // The path of whoever calls this says nothing of another host.
    let path = std::env::var_os("PATH").filter(|_| host.prefix() == Path::new("/"));
    let own = path.iter().flat_map(std::env::split_paths).filter(|dir| dir.is_absolute());
    let mut places = own.chain(PROGRAM_DIRS.map(PathBuf::from)).map(|dir| dir.join(name));
    places.find(|place| host.exists(place)).unwrap_or_else(|| Path::new("/usr/bin").join(name))
}

/// A directory of the host; NVIDIA's default, nothing, is its root.
fn root(path: &str) -> Result<PathBuf, String> {
    match path {
        "" => Ok(PathBuf::from("/")),
        path if path.starts_with('/') => Ok(PathBuf::from(path)),
        _ => Err("it must begin with /".to_owned()),
    }
}

fn mode(name: &str) -> Result<GenerateMode, String> {
    GenerateMode::parse(name)
        .ok_or_else(|| format!("the modes are {}", GenerateMode::names().join(", ")))
}

fn strategy(name: &str) -> Result<NameStrategy, String> {
    NameStrategy::parse(name)
        .ok_or_else(|| "the strategies are index, uuid and type-index".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::{Layout, Node};

    fn args(words: &[&str]) -> Args {
        parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn flags_have_nvidias_names_and_meaning() {
        let args = args(&[
            "--device-ids=0,1",
            "--discovery-mode=gds",
            "--cdi-class=x",
            "--disable-hooks=all",
            "--enable-hook=update-ldcache",
            "--csv.file=/a.csv",
            "--nvidia-ctk-path=nvidia-ctk",
            "--driver-root=",
        ]);
        let recipe = args.recipe().unwrap();
        assert_eq!(recipe.devices, ["0", "1"]);
        assert_eq!((recipe.mode, recipe.kind.as_str()), (GenerateMode::Gds, "nvidia.com/x"));
        assert_eq!(recipe.csv.files, [Path::new("/a.csv")]);
        assert!(!recipe.hooks.disabled.contains(&GeneratedHook::UpdateLdcache));
        assert!(recipe.hooks.disabled.contains(&GeneratedHook::CreateSymlinks));
        assert!(recipe.hooks.program.is_absolute() && recipe.hooks.program.ends_with("nvidia-ctk"));
        assert_eq!(args.driver_root.as_deref(), Some(Path::new("/")));
    }

    #[test]
    fn what_is_no_flag_value_is_told() {
        for words in
            [["--mode=x"], ["--device-name-strategy=x"], ["--driver-root=x"], ["--format=x"]]
        {
            parse(&words.map(str::to_owned)).unwrap_err();
        }
        let error = args(&["--enable-hook=all"]).recipe().unwrap_err().to_string();
        assert!(error.contains("create-symlinks"), "{error}");
        // Without --output there is nothing to write again.
        parse(&["--watch".to_owned()]).unwrap_err();
    }

    #[test]
    fn each_mode_has_a_kind_of_its_own() {
        let kind = |words: &[&str]| args(words).recipe().unwrap().kind;
        assert_eq!(kind(&[]), "nvidia.com/gpu");
        assert_eq!(kind(&["--mode=imex"]), "nvidia.com/imex-channel");
        assert_eq!(kind(&["--mode=management"]), "management.nvidia.com/gpu");
        assert_eq!(kind(&["--mode=management", "--class=x"]), "nvidia.com/x");
        assert_eq!(kind(&["--mode=csv", "--vendor=a.b"]), "a.b/gpu");
    }

    #[test]
    fn every_layout_of_a_host_is_described() {
        for layout in [
            Layout::Debian,
            Layout::Rhel,
            Layout::Talos,
            Layout::DriverContainer,
            Layout::Nixos,
            Layout::Gke,
            Layout::Flatcar,
        ] {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().join("host");
            Node::new(layout, 2).write(&root).unwrap();
            let host_root = format!("--host-root={}", root.display());
            let Generated { spec, .. } = args(&[&host_root]).generate().unwrap();
            let names: Vec<_> = spec.devices.iter().map(|device| device.name.as_str()).collect();
            assert_eq!(names.len(), 5, "{names:?}");
            let host = Host::new(&root);
            let edits = spec.devices.iter().map(|device| &device.edits).chain([&spec.edits]);
            for edits in edits {
                for mount in &edits.mounts {
                    assert!(host.exists(Path::new(&mount.host_path)), "{layout:?} {mount:?}");
                }
                for node in &edits.device_nodes {
                    let place =
                        if node.host_path.is_empty() { &node.path } else { &node.host_path };
                    assert!(host.exists(Path::new(place)), "{layout:?} {node:?}");
                }
            }
            let commands: Vec<_> =
                spec.edits.hooks.iter().map(|hook| hook.args[1].as_str()).collect();
            assert!(commands.contains(&"update-ldcache"), "{commands:?}");
        }
    }
}
