//! The two `RuntimeClass` handlers, told apart by the name of the program that was called.

use std::fmt;

/// Which contract a container is served by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handler {
    /// `io.containerd.nvidia.v2`: the environment contract, discovered just in time.
    Nvidia,
    /// `io.containerd.nvidia-cdi.v2`: CDI names.
    NvidiaCdi,
}

impl Handler {
    /// The handler of a program name such as `containerd-shim-nvidia-cdi-v2` or
    /// `nvidia-container-runtime.cdi`.
    pub fn of_program(name: &str) -> Self {
        let cdi = name.contains("nvidia-cdi") || name.ends_with("nvidia-container-runtime.cdi");
        if cdi { Self::NvidiaCdi } else { Self::Nvidia }
    }

    /// The handler of a `RuntimeClass` handler name, `nvidia` or `nvidia-cdi`.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "nvidia" => Some(Self::Nvidia),
            "nvidia-cdi" => Some(Self::NvidiaCdi),
            _ => None,
        }
    }

    /// The `RuntimeClass` handler name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia",
            Self::NvidiaCdi => "nvidia-cdi",
        }
    }
}

impl fmt::Display for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
