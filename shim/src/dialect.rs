//! What containerd sends to `start` and wants from it.
//!
//! Up to 2.2 standard input is the runtime options as `google.protobuf.Any` or nothing, and the
//! answer a plain address, which every version takes for a shim of task v2 (the one we serve).
//! From 2.3 on it is `BootstrapParams`, and the answer `BootstrapResult`.

use std::path::PathBuf;

use containerd_shim_protos::bootstrap_api::{BootstrapParams, BootstrapResult, LogLevel};
use containerd_shim_protos::protobuf::well_known_types::any::Any;
use containerd_shim_protos::protobuf::{self, Enum, Message};

use crate::args::Args;

/// Where the stock shim's sockets are, compiled into every containerd.
const SOCKET_DIR: &str = "/run/containerd/s";

/// The version of the task service that we tell containerd.
const TASK_VERSION: i32 = 2;

/// Messages that carry runtime options; the last part of a type URL.
const OPTIONS: &[&str] = &[
    "containerd.runc.v1.Options",
    "runtimeoptions.v1.Options",
    "containerd.linux.runc.CreateOptions",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    /// Up to containerd 2.2.
    Plain,
    /// From containerd 2.3.
    Bootstrap,
}

/// What containerd wants started.
#[derive(Debug)]
pub(crate) struct StartRequest {
    dialect: Dialect,
    /// The options table of the handler, as containerd packed it.
    pub(crate) options: Option<Any>,
    /// containerd's GRPC socket.
    pub(crate) address: String,
    /// containerd's ttrpc socket, if the request names it; else it is in the environment.
    pub(crate) ttrpc_address: Option<String>,
    /// The containerd program.
    pub(crate) containerd: PathBuf,
    pub(crate) debug: bool,
    pub(crate) socket_dir: PathBuf,
}

/// Why standard input is no request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialectError {
    #[error("standard input is neither runtime options nor BootstrapParams")]
    Unreadable(#[source] protobuf::Error),
    #[error("BootstrapParams are for {namespace}/{id}, the command line is not")]
    Mismatch { namespace: String, id: String },
}

impl StartRequest {
    /// Reads standard input in either dialect.
    ///
    /// # Errors
    /// Input that is neither, or that is meant for another container.
    pub(crate) fn read(input: &[u8], args: &Args) -> Result<Self, DialectError> {
        if let Ok(params) = BootstrapParams::parse_from_bytes(input) {
            if params.instance_id == args.id && params.namespace == args.namespace {
                return Ok(Self::of_bootstrap(params, args));
            }
            // An Any reads as BootstrapParams with the first two fields only.
            let BootstrapParams { instance_id, namespace, .. } = &params;
            let (id, namespace) = (instance_id.clone(), namespace.clone());
            let only_names = BootstrapParams {
                instance_id: id.clone(),
                namespace: namespace.clone(),
                special_fields: params.special_fields.clone(),
                ..Default::default()
            };
            if params != only_names {
                return Err(DialectError::Mismatch { namespace, id });
            }
        }
        let any = Any::parse_from_bytes(input).map_err(DialectError::Unreadable)?;
        Ok(Self {
            dialect: Dialect::Plain,
            options: (!any.type_url.is_empty()).then_some(any),
            address: args.address.clone(),
            ttrpc_address: None,
            containerd: args.publish_binary.clone(),
            debug: args.debug,
            socket_dir: SOCKET_DIR.into(),
        })
    }

    fn of_bootstrap(params: BootstrapParams, args: &Args) -> Self {
        let or = |value: String, otherwise: &str| {
            if value.is_empty() { otherwise.to_owned() } else { value }
        };
        let options = params
            .extensions
            .into_iter()
            .filter_map(|extension| extension.value.into_option())
            .find(|any| OPTIONS.contains(&name_of(&any.type_url)));
        let containerd = PathBuf::from(params.containerd_binary);
        Self {
            dialect: Dialect::Bootstrap,
            options,
            address: or(params.containerd_grpc_address, &args.address),
            ttrpc_address: Some(params.containerd_ttrpc_address).filter(|it| !it.is_empty()),
            containerd: if containerd.as_os_str().is_empty() {
                args.publish_binary.clone()
            } else {
                containerd
            },
            debug: args.debug || params.log_level.value() <= LogLevel::LOG_LEVEL_DEBUG.value(),
            socket_dir: or(params.socket_dir.unwrap_or_default(), SOCKET_DIR).into(),
        }
    }

    /// The bytes that tell containerd to connect to `address` (`unix://…`).
    ///
    /// # Errors
    /// Those of the protobuf writer.
    pub(crate) fn answer(&self, address: &str) -> Result<Vec<u8>, protobuf::Error> {
        match self.dialect {
            Dialect::Plain => Ok(address.as_bytes().to_vec()),
            Dialect::Bootstrap => BootstrapResult {
                version: TASK_VERSION,
                address: address.to_owned(),
                protocol: "ttrpc".to_owned(),
                ..Default::default()
            }
            .write_to_bytes(),
        }
    }
}

/// The message that a type URL names; the part before the last slash is optional.
fn name_of(type_url: &str) -> &str {
    type_url.rsplit('/').next().unwrap_or(type_url)
}

#[cfg(test)]
mod tests {
    use containerd_shim_protos::bootstrap_api::Extension;
    use containerd_shim_protos::protobuf::EnumOrUnknown;

    use super::*;

    fn args() -> Args {
        let words = "-namespace k8s.io -address /c.sock -publish-binary /bin/c -id abc start";
        Args::parse(&words.split(' ').map(str::to_owned).collect::<Vec<_>>()).unwrap()
    }

    fn options() -> Any {
        Any {
            type_url: "runtimeoptions.v1.Options".to_owned(),
            // Not UTF-8, as a real message may be.
            value: vec![0x1a, 0x02, 0xc3, 0x28],
            ..Default::default()
        }
    }

    fn bootstrap() -> BootstrapParams {
        BootstrapParams {
            instance_id: "abc".to_owned(),
            namespace: "k8s.io".to_owned(),
            log_level: EnumOrUnknown::new(LogLevel::LOG_LEVEL_TRACE),
            containerd_ttrpc_address: "unix:///c.sock.ttrpc".to_owned(),
            containerd_grpc_address: "unix:///c.sock".to_owned(),
            containerd_binary: "/opt/c".to_owned(),
            extensions: [Any { type_url: "other".to_owned(), ..Default::default() }, options()]
                .map(|any| Extension { value: Some(any).into(), ..Default::default() })
                .to_vec(),
            socket_dir: Some("/run/s".to_owned()),
            ..Default::default()
        }
    }

    #[test]
    fn nothing_is_a_request_without_options() {
        let request = StartRequest::read(b"", &args()).unwrap();
        assert_eq!(request.options, None);
        assert_eq!(request.address, "/c.sock");
        assert_eq!(request.socket_dir, PathBuf::from(SOCKET_DIR));
        assert_eq!(request.answer("unix:///s/x").unwrap(), b"unix:///s/x");
    }

    #[test]
    fn an_any_is_the_options_of_the_plain_dialect() {
        for any in [options(), Any { value: b"ascii".to_vec(), ..options() }] {
            let request = StartRequest::read(&any.write_to_bytes().unwrap(), &args()).unwrap();
            assert_eq!(request.dialect, Dialect::Plain);
            assert_eq!(request.options, Some(any));
        }
    }

    #[test]
    fn bootstrap_params_are_answered_with_a_bootstrap_result_of_version_2() {
        let input = bootstrap().write_to_bytes().unwrap();
        let request = StartRequest::read(&input, &args()).unwrap();
        assert_eq!(request.options, Some(options()));
        assert_eq!(request.address, "unix:///c.sock");
        assert_eq!(request.ttrpc_address.as_deref(), Some("unix:///c.sock.ttrpc"));
        assert_eq!(request.containerd, PathBuf::from("/opt/c"));
        assert_eq!(request.socket_dir, PathBuf::from("/run/s"));
        assert!(request.debug);
        // As on the wire of containerd's main: 08 VERSION 12 LEN ADDRESS 1a 05 ttrpc.
        assert_eq!(request.answer("unix:///s").unwrap(), b"\x08\x02\x12\x09unix:///s\x1a\x05ttrpc");
    }

    #[test]
    fn a_request_for_another_container_and_noise_are_refused() {
        let other = BootstrapParams { instance_id: "abd".to_owned(), ..bootstrap() };
        let refused = StartRequest::read(&other.write_to_bytes().unwrap(), &args());
        assert!(matches!(refused, Err(DialectError::Mismatch { .. })));
        let refused = StartRequest::read(b"\xff\xff\xff", &args());
        assert!(matches!(refused, Err(DialectError::Unreadable(_))));
    }
}
