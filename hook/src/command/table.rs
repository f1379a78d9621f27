//! The commands and their flags.

/// A command.
#[derive(Debug)]
pub(super) struct Verb {
    pub(super) name: &'static str,
    pub(super) does: &'static str,
    pub(super) flags: &'static [Flag],
}

/// A flag of a command.
#[derive(Debug)]
pub(super) struct Flag {
    pub(super) name: &'static str,
    /// What its value is, in capitals; none where it is a switch.
    pub(super) value: Option<&'static str>,
    /// Whether it may be given several times, each time for one thing.
    pub(super) several: bool,
    pub(super) does: &'static str,
}

impl Verb {
    pub(super) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|known| known.name == flag)
    }
}

const fn one(name: &'static str, value: &'static str, does: &'static str) -> Flag {
    Flag { name, value: Some(value), several: false, does }
}

const fn several(name: &'static str, value: &'static str, does: &'static str) -> Flag {
    Flag { name, value: Some(value), several: true, does }
}

const fn switch(name: &'static str, does: &'static str) -> Flag {
    Flag { name, value: None, several: false, does }
}

/// Ours, which does what all others do.
pub(super) const APPLY: &str = "apply";

const STATE: Flag = one("container-spec", "FILE", "the container's state, instead of stdin");
const HELP: Flag = switch("help", "this text");
const LINK: Flag = several("link", "TARGET::LINK", "a symbolic link in the container");
const FOLDER: Flag = several("folder", "DIR", "a directory whose libraries the loader finds");
const DRIVER: Flag = one("host-driver-version", "VERSION", "the host's driver, as 550.54.15");
const CUDA: Flag = one("host-cuda-version", "VERSION", "the newest CUDA of the host's driver");
const COMPAT: Flag = one(
    "cuda-compat-container-root",
    "DIR",
    "where the image has CUDA's compatibility libraries; /usr/local/cuda/compat",
);
const MODE: Flag = one("mode", "OCTAL", "permissions, as 755");
const PATH: Flag = several("path", "PATH", "what gets them; what is missing is passed over");

pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "create-symlinks", does: "makes symbolic links", flags: &[LINK, STATE, HELP] },
    Verb {
        name: "update-ldcache",
        does: "brings the libraries of directories to the loader",
        flags: &[
            FOLDER,
            one("ldconfig-path", "FILE", "of no meaning: no ldconfig is executed"),
            STATE,
            HELP,
        ],
    },
    Verb {
        name: "enable-cuda-compat",
        does: "prefers the image's CUDA compatibility libraries where they are for the driver",
        flags: &[DRIVER, CUDA, COMPAT, STATE, HELP],
    },
    Verb {
        name: "disable-device-node-modification",
        does: "keeps the driver's library from making device nodes",
        flags: &[STATE, HELP],
    },
    Verb {
        name: "update-application-profile",
        does: "lets EGL and Vulkan see only the container's GPUs",
        flags: &[STATE, HELP],
    },
    Verb { name: "chmod", does: "sets permissions", flags: &[MODE, PATH, STATE, HELP] },
    Verb {
        name: APPLY,
        does: "does all of that at once, what its flags say; twice is once",
        flags: &[
            LINK,
            several("file", "PATH::CONTENT", "a file with this content"),
            MODE,
            PATH,
            DRIVER,
            CUDA,
            COMPAT,
            FOLDER,
            switch("update-application-profile", "as the command"),
            switch("disable-device-node-modification", "as the command"),
            STATE,
            HELP,
        ],
    },
    // For whoever tries whether the program can be started.
    Verb { name: "noop", does: "does nothing", flags: &[HELP] },
];
