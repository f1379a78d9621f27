//! What happens to a Create: a container that asks for nothing passes, one that asks gets its
//! bundle and root filesystem prepared by the [worker](crate::worker), or is refused; and the
//! runtime's options become those that the inner shim reads.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use containerd_shim_protos::api::{CreateTaskRequest, Mount as ProtoMount};
use containerd_shim_protos::protobuf::{Message, MessageField};
use nvidia_oci::{Bundle, Code, Config, ConfigSource, Error, Handler};

use crate::frame::answer::Refusal;
use crate::options::{self, Translation};
use crate::prepare::{self, DEADLINE, asks};
use crate::program::Program;
use crate::worker::{Answer, Job, Mount, Worker};

/// What is left of the caller's time for the inner shim and runc.
const MARGIN: Duration = Duration::from_secs(2);
/// Parsing JSON is recursive; the pages go back when the thread ends.
const STACK: usize = 1 << 20;

/// More different warnings than one relay has to say of options.
const SAID: usize = 32;

/// What becomes of a Create.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    /// Not a byte changes.
    Pass,
    /// The message is replaced; and what is left of the caller's time, if that was limited.
    Change {
        payload: Vec<u8>,
        timeout: Option<Duration>,
    },
    Refuse(Refusal),
}

/// Judges Creates.
pub(crate) struct Creator {
    handler: Handler,
    worker: Worker,
    /// Warnings about options that were logged.
    said: Mutex<BTreeSet<String>>,
}

impl Creator {
    pub(crate) fn new(program: &Program) -> Self {
        let handler = program.handler();
        let program = program.clone();
        Self::with(handler, Worker::new(move || program.again("worker")))
    }

    pub(crate) fn with(handler: Handler, worker: Worker) -> Self {
        Self { handler, worker, said: Mutex::default() }
    }

    /// Judges the message of a Create whose caller waits for `timeout`. On a thread of its own: a
    /// panic ends there, and so does the memory it took.
    pub(crate) fn judge(&self, message: &[u8], timeout: Option<Duration>) -> Verdict {
        let judged = thread::scope(|scope| {
            let create = thread::Builder::new().name("create".into()).stack_size(STACK);
            let create = create.spawn_scoped(scope, || self.create(message, timeout))?;
            Ok::<_, std::io::Error>(create.join())
        });
        match judged {
            Ok(Ok(Ok(verdict))) => verdict,
            Ok(Ok(Err(refusal))) => Verdict::Refuse(refusal),
            Ok(Err(panic)) => {
                let what = format!("the shim failed at a Create: {}", words(&*panic));
                Verdict::Refuse(Refusal::internal(&Error::new(Code::WorkerCrashed, what)))
            }
            Err(error) => {
                let error = Error::caused(Code::WorkerCrashed, "a thread for a Create", error);
                Verdict::Refuse(Refusal::internal(&error))
            }
        }
    }

    fn create(&self, message: &[u8], timeout: Option<Duration>) -> Result<Verdict, Refusal> {
        let begun = Instant::now();
        let mut request = CreateTaskRequest::parse_from_bytes(message)
            .map_err(|error| Refusal::malformed(format!("CreateTaskRequest: {error}")))?;
        let bundle = Path::new(&request.bundle);
        // Without a spec there is nothing to ask; the inner shim says what is wrong.
        let spec = Bundle::read(bundle).unwrap_or_else(|error| {
            log::warn!("{}: {error}", request.id);
            Vec::new()
        });
        let cgroups_path = options::cgroups_path(&spec);
        let translation = options::translate(request.options.as_ref(), cgroups_path.as_deref());
        self.warn_once(&request.id, &translation.warnings);
        let settings = ConfigSource {
            default_path: Some(Config::default_file(|name| std::env::var(name).ok())),
            ..translation.source.clone()
        };
        let asks = asks(&spec, &settings).map_err(|error| Refusal::precondition(&error))?;
        let mut changed = false;
        if asks {
            changed |=
                self.prepare(&mut request, &spec, &translation, settings, deadline(timeout))?;
        } else if let Some(error) = &translation.broken {
            log::warn!("{}: {error}", request.id);
        }
        if let Some(options) = translation.inner {
            request.options = MessageField::some(options);
            changed = true;
        }
        if !changed {
            return Ok(Verdict::Pass);
        }
        let payload = request.write_to_bytes().map_err(|error| {
            Refusal::internal(&Error::caused(Code::WorkerCrashed, "CreateTaskRequest", error))
        })?;
        let timeout = timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
        Ok(Verdict::Change { payload, timeout })
    }

    /// Has the container prepared. Says whether the request was changed.
    fn prepare(
        &self,
        request: &mut CreateTaskRequest,
        spec: &[u8],
        translation: &Translation,
        settings: ConfigSource,
        deadline: Duration,
    ) -> Result<bool, Refusal> {
        if let Some(error) = &translation.broken {
            return Err(Refusal::precondition(error));
        }
        let job = self.job(request, settings);
        let answer = prepare::prepare(&self.worker, &job, spec, deadline).map_err(|error| {
            log::error!("{}: {error}", request.id);
            Refusal::precondition(&error)
        })?;
        match answer {
            Answer::Untouched { .. } => Ok(false),
            Answer::Refused { message } => {
                log::warn!("{}: {message}", request.id);
                Err(Refusal::refused(message))
            }
            Answer::Edited { rootfs, .. } => {
                let changed = rootfs != job.rootfs;
                if changed {
                    replace(&mut request.rootfs, rootfs);
                }
                Ok(changed)
            }
        }
    }

    /// Containers of a pod have the options in common: what is wrong with them is said once.
    fn warn_once(&self, id: &str, warnings: &[String]) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        for warning in warnings {
            if said.len() < SAID && said.insert(warning.clone()) {
                log::warn!("{id}: {warning}");
            }
        }
    }

    fn job(&self, request: &CreateTaskRequest, settings: ConfigSource) -> Job {
        Job {
            before_runc: false,
            id: request.id.clone(),
            handler: self.handler.name().to_owned(),
            bundle: request.bundle.clone().into(),
            rootfs: request.rootfs.iter().map(mount).collect(),
            config: settings.path,
            default_config: settings.default_path,
            table: settings.table,
            table_file: settings.table_file,
            set: settings.set,
        }
    }
}

fn deadline(timeout: Option<Duration>) -> Duration {
    let callers =
        timeout.map_or(DEADLINE, |timeout| timeout.saturating_sub(MARGIN).max(timeout / 2));
    callers.min(DEADLINE)
}

fn mount(mount: &ProtoMount) -> Mount {
    Mount {
        kind: mount.type_.clone(),
        source: mount.source.clone(),
        target: mount.target.clone(),
        options: mount.options.clone(),
    }
}

/// Puts `mounts` in the place of `rootfs`; what we do not know of one stays with it.
fn replace(rootfs: &mut Vec<ProtoMount>, mounts: Vec<Mount>) {
    let mut before = std::mem::take(rootfs).into_iter();
    rootfs.extend(mounts.into_iter().map(|mount| ProtoMount {
        type_: mount.kind,
        source: mount.source,
        target: mount.target,
        options: mount.options,
        ..before.next().unwrap_or_default()
    }));
}

/// What a panic said.
fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic")
}

#[cfg(test)]
mod tests;
