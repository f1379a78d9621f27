//! `nvidia-shim cdi`: CDI specs written, listed, checked, compared, and told what comes of them.

mod diff;
mod generate;
mod list;
mod output;
mod resolve;
mod tree;
mod validate;
mod watch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nvidia_oci::{Config, ConfigSource, Host};

pub use self::generate::{Args as GenerateArgs, parse as parse_generate};

/// Work with CDI specs
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    // As large as all others together.
    Generate(Box<generate::Args>),
    List(list::Args),
    Validate(validate::Args),
    Diff(diff::Args),
    Resolve(resolve::Args),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Generate(args) => generate::run(args),
        Command::List(args) => list::run(args),
        Command::Validate(args) => validate::run(args),
        Command::Diff(args) => diff::run(args),
        Command::Resolve(args) => resolve::run(args),
    }
}

/// Which host is looked at, and where its specs are.
#[derive(Debug, clap::Args)]
struct Place {
    /// Directory that is looked at as the root of the host
    #[arg(long, value_name = "DIR")]
    host_root: Option<PathBuf>,
    /// Directory of CDI specs, a later one goes before an earlier one; may be repeated
    #[arg(long, value_name = "DIR", env = "NVIDIA_CTK_CDI_SPEC_DIRS", value_delimiter = ',')]
    spec_dir: Vec<PathBuf>,
}

impl Place {
    fn host(&self) -> anyhow::Result<Host> {
        host(self.host_root.as_deref())
    }

    /// The settings of the node, with these directories in place of theirs.
    fn config(&self) -> anyhow::Result<Config> {
        let mut config = node_config(self.host_root.as_deref())?;
        if !self.spec_dir.is_empty() {
            config.cdi_spec_dirs.clone_from(&self.spec_dir);
        }
        Ok(config)
    }
}

fn host(root: Option<&Path>) -> anyhow::Result<Host> {
    Ok(match root {
        Some(root) => Host::new(std::path::absolute(root)?),
        None => Host::new("/"),
    })
}

/// The settings of the node; those of this machine say nothing of another.
fn node_config(host_root: Option<&Path>) -> anyhow::Result<Config> {
    let default_path =
        host_root.is_none().then(|| Config::default_file(|name| std::env::var(name).ok()));
    let (config, warnings) =
        Config::load(&ConfigSource { default_path, ..ConfigSource::default() })?;
    warn(warnings);
    Ok(config)
}

fn warn(warnings: impl IntoIterator<Item = String>) {
    for warning in warnings {
        crate::complain(&anyhow::Error::msg(warning));
    }
}
