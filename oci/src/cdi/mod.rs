//! The Container Device Interface: names of devices, specs that describe them, and the directories
//! that specs are found in.
//!
//! A spec is a file of root's that says which edits of a container give it a device. The facts are
//! those of the CDI specification up to 1.1.0 and, where it is silent, of its Go library, which the
//! container engines use: a spec that they take is taken here, and one that they refuse is refused.

mod check;
pub(crate) mod foreign;
mod generate;
mod model;
mod name;
mod peek;
mod problem;
mod read;
mod registry;
mod version;
mod write;
mod yaml;

pub use generate::{
    CSV_FILES, CsvFiles, GenerateMode, Generated, GeneratedHook, Hooks, NameStrategy, Recipe,
};
pub use model::{ContainerEdits, Device, DeviceNode, Hook, IntelRdt, Mount, NetDevice, Spec};
pub use name::{NameError, QualifiedName, check_device_name, check_kind};
pub use problem::Problem;
pub use read::{parse, read, validate};
pub use registry::{FileProblem, Found, Registry, SpecFile};
pub use version::Version;
