//! The variables by which a container asks. The last entry of a name counts, as it does for the
//! container; names of variables live here only.

use std::collections::HashSet;

use crate::{Code, Error, Result};

use super::{AskedCapabilities, ImexRequest, Request, Requirement, Selection, Source, shortened};

/// Which GPUs a container sees.
pub const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
/// Which parts of the driver a container may use.
pub const DRIVER_CAPABILITIES: &str = "NVIDIA_DRIVER_CAPABILITIES";
/// What an image needs of driver and GPU.
const REQUIRE: &str = "NVIDIA_REQUIRE_";
/// Which IMEX channels a container may use.
const IMEX_CHANNELS: &str = "NVIDIA_IMEX_CHANNELS";
/// That it does not matter.
pub const DISABLE_REQUIRE: &str = "NVIDIA_DISABLE_REQUIRE";
pub(super) const CUDA_VERSION: &str = "CUDA_VERSION";
const REQUIRE_CUDA: &str = "NVIDIA_REQUIRE_CUDA";
/// Not what an image needs but which files of Tegra it takes.
const REQUIRE_JETPACK: &str = "NVIDIA_REQUIRE_JETPACK";

/// The kernel gives no program a longer string of its environment (`MAX_ARG_STRLEN`).
const LONGEST_VALUE: usize = 128 << 10;
/// And no larger environment, three quarters of the usual stack (`bprm_stack_limits` of `exec.c`).
const LARGEST: usize = 6 << 20;

/// The variables that matter.
#[derive(Debug, Default)]
pub(crate) struct Environment<'a> {
    visible_devices: Entry<'a>,
    pub(super) driver_capabilities: Entry<'a>,
    cuda_version: Entry<'a>,
    disable_require: Entry<'a>,
    imex_channels: Entry<'a>,
    /// As they stand; the last of a name counts.
    requirements: Vec<(&'a str, Entry<'a>)>,
    require_cuda: Entry<'a>,
    /// Of all entries together.
    size: usize,
    /// Those of `swarm-resource`, in its order.
    swarm: Vec<(&'a str, Entry<'a>)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Entry<'a> {
    #[default]
    Absent,
    /// No `=`: not an assignment, and runc will not start such a container.
    WithoutValue,
    Set(&'a str),
}

impl<'a> Environment<'a> {
    /// `swarm`: names that stand for [`VISIBLE_DEVICES`] where they are set.
    pub(crate) fn of(entries: impl Iterator<Item = &'a str>, swarm: &'a [String]) -> Self {
        let swarm = swarm.iter().map(|name| (name.as_str(), Entry::Absent)).collect();
        let mut environment = Self { swarm, ..Self::default() };
        for entry in entries {
            environment.size = environment.size.saturating_add(entry.len() + 1);
            let (name, value) = match entry.split_once('=') {
                Some((name, value)) => (name, Entry::Set(value)),
                None => (entry, Entry::WithoutValue),
            };
            environment.take(name, value);
        }
        environment
    }

    fn take(&mut self, name: &'a str, value: Entry<'a>) {
        for (_, entry) in self.swarm.iter_mut().filter(|(swarm, _)| *swarm == name) {
            *entry = value;
        }
        match name {
            VISIBLE_DEVICES => self.visible_devices = value,
            DRIVER_CAPABILITIES => self.driver_capabilities = value,
            CUDA_VERSION => self.cuda_version = value,
            DISABLE_REQUIRE => self.disable_require = value,
            IMEX_CHANNELS => self.imex_channels = value,
            _ if name.starts_with(REQUIRE) && !name.starts_with(REQUIRE_JETPACK) => {
                self.requirements.push((name, value));
                if name == REQUIRE_CUDA {
                    self.require_cuda = value;
                }
            }
            _ => {}
        }
    }

    /// Sees to it that reading on takes no longer than for what a program can be started with.
    ///
    /// # Errors
    /// [`Code::InvalidRequest`]: the kernel would start none with this environment.
    pub(crate) fn check_size(&self) -> Result<()> {
        if self.size <= LARGEST {
            return Ok(());
        }
        let what =
            format!("the environment has {} bytes, and no program can have more than", self.size);
        Err(Error::new(Code::InvalidRequest, format!("{what} {LARGEST}")))
    }

    /// What is asked for; `None` if nothing.
    ///
    /// # Errors
    /// [`Code::InvalidRequest`] if the variable is there without a value, or with one so long that
    /// no program could be started with it.
    pub(crate) fn request(&self) -> Result<Option<Request>> {
        let mut variables: Vec<(&str, Entry<'_>)> = self.swarm.clone();
        variables.retain(|(_, entry)| *entry != Entry::Absent);
        if variables.is_empty() {
            variables.push((VISIBLE_DEVICES, self.visible_devices));
        }
        let (mut items, mut values) = (Vec::new(), Vec::new());
        for (name, entry) in variables {
            match entry {
                Entry::Set(value) if value.len() > LONGEST_VALUE => {
                    let what = format!("{name} is {} bytes long", value.len());
                    return Err(Error::new(Code::InvalidRequest, what));
                }
                Entry::Set(value) => {
                    items.extend(value.split(','));
                    values.push((name.to_owned(), value.to_owned()));
                }
                Entry::WithoutValue => {
                    let what = format!("the environment has {name} without a value");
                    return Err(Error::new(Code::InvalidRequest, what));
                }
                Entry::Absent => {
                    let source = self.legacy_image().map(|image| Source::LegacyImage(image.into()));
                    return Ok(source.map(|source| self.asking(Selection::All, source)));
                }
            }
        }
        let gpus = Selection::of(&items);
        Ok(gpus.map(|gpus| self.asking(gpus, Source::Variables(values))))
    }

    /// A request for these GPUs, with all else that the environment says.
    pub(super) fn asking(&self, gpus: Selection, source: Source) -> Request {
        Request {
            gpus,
            source,
            capabilities: AskedCapabilities::of(self),
            requirements: self.requirements(),
            imex: None,
            trust: "",
        }
    }

    /// The IMEX channels that are asked for, if any.
    ///
    /// # Errors
    /// [`Code::ImexChannel`]: an item of the list is none.
    pub(crate) fn imex(&self) -> Result<Option<ImexRequest>> {
        let Entry::Set(value) = self.imex_channels else { return Ok(None) };
        ImexRequest::of(value.split(','), format!("{IMEX_CHANNELS}={}", shortened(value)))
    }

    fn requirements(&self) -> Vec<Requirement> {
        if matches!(self.disable_require, Entry::Set(value) if is_true(value)) {
            return Vec::new();
        }
        let legacy = self.legacy_image().map(|version| Requirement {
            variable: CUDA_VERSION.to_owned(),
            expression: format!("cuda>={}", major_minor(version)),
        });
        let mut seen = HashSet::new();
        let last = self.requirements.iter().rev().filter(|(name, _)| seen.insert(*name));
        let mut named: Vec<Requirement> = last
            .filter_map(|(name, entry)| match entry {
                Entry::Set(value) if !value.trim().is_empty() => Some(Requirement {
                    variable: (*name).to_owned(),
                    expression: (*value).to_owned(),
                }),
                _ => None,
            })
            .collect();
        named.extend(legacy);
        named.reverse();
        named
    }

    /// The CUDA version of an image from before `NVIDIA_REQUIRE_CUDA`.
    pub(super) fn legacy_image(&self) -> Option<&'a str> {
        let has_requirement = matches!(self.require_cuda, Entry::Set(value) if !value.is_empty());
        match self.cuda_version {
            Entry::Set(version) if !version.is_empty() && !has_requirement => Some(version),
            _ => None,
        }
    }
}

/// The words that Go's `strconv.ParseBool`, with which NVIDIA reads it, takes for true.
fn is_true(value: &str) -> bool {
    matches!(value, "1" | "t" | "T" | "TRUE" | "true" | "True")
}

/// `11.0` of `11.0.3`
fn major_minor(version: &str) -> String {
    version.split('.').take(2).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(env: &[&str], swarm: &[&str]) -> Result<Option<Request>> {
        let swarm: Vec<String> = swarm.iter().map(|name| (*name).to_owned()).collect();
        Environment::of(env.iter().copied(), &swarm).request()
    }

    #[test]
    fn the_last_entry_counts() {
        let asked = request(&["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_VISIBLE_DEVICES=void"], &[]);
        assert_eq!(asked.unwrap(), None);
        let error = request(&["NVIDIA_VISIBLE_DEVICES"], &[]).unwrap_err();
        assert_eq!(error.code(), Code::InvalidRequest);
    }

    #[test]
    fn an_image_from_before_the_variable_asks_for_all() {
        let asks = |env: &[&str]| request(env, &[]).unwrap().map(|request| request.gpus);
        assert_eq!(asks(&["CUDA_VERSION=8"]), Some(Selection::All));
        assert_eq!(asks(&["CUDA_VERSION=8", "NVIDIA_REQUIRE_CUDA="]), Some(Selection::All));
        assert_eq!(asks(&["CUDA_VERSION=8", "NVIDIA_REQUIRE_CUDA=cuda>=8"]), None);
        assert_eq!(asks(&["CUDA_VERSION=8", "NVIDIA_VISIBLE_DEVICES="]), None);
        assert_eq!(asks(&["CUDA_VERSION="]), None);
    }

    #[test]
    fn swarm_variables_stand_for_the_documented_one_where_they_are_set() {
        let env = ["B=GPU-b,void ", "NVIDIA_VISIBLE_DEVICES=all", "A=0", "B=GPU-b"];
        let asked = |swarm: &[&str]| request(&env, swarm).unwrap().unwrap();
        let both = asked(&["A", "B"]);
        assert_eq!(both.source.to_string(), "A=0 and B=GPU-b");
        assert!(matches!(both.gpus, Selection::Listed(list) if list.len() == 2));
        assert_eq!(asked(&["B", "C"]).source.to_string(), "B=GPU-b");
        assert_eq!(asked(&["C"]).gpus, Selection::All);
        // Set to nothing is set.
        assert_eq!(request(&["A=", "NVIDIA_VISIBLE_DEVICES=all"], &["A"]).unwrap(), None);
        assert_eq!(request(&["A=", "CUDA_VERSION=8"], &["A"]).unwrap(), None);
    }

    #[test]
    fn a_value_that_no_program_could_be_given_is_refused() {
        let list = |bytes: usize| format!("NVIDIA_VISIBLE_DEVICES={}", "0,".repeat(bytes / 2));
        let asked = request(&[&list(LONGEST_VALUE)], &[]).unwrap().unwrap();
        assert!(matches!(asked.gpus, Selection::Listed(list) if list.len() == LONGEST_VALUE / 2));
        let error = request(&[&list(10 << 20)], &[]).unwrap_err();
        assert_eq!(error.code(), Code::InvalidRequest);
        assert!(error.to_string().contains("10485760 bytes long"), "{error}");
    }

    fn requirements(env: &[&str]) -> Vec<String> {
        let env = ["NVIDIA_VISIBLE_DEVICES=all"].iter().chain(env).copied().collect::<Vec<_>>();
        let request = request(&env, &[]).unwrap().unwrap();
        let shown = |item: &Requirement| format!("{} {}", item.variable, item.expression);
        request.requirements.iter().map(shown).collect()
    }

    #[test]
    fn requirements_are_those_of_all_variables_but_jetpack() {
        let env = [
            "NVIDIA_REQUIRE_CUDA=cuda>=1",
            "NVIDIA_REQUIRE_X=arch>=7",
            "NVIDIA_REQUIRE_EMPTY= ",
            "NVIDIA_REQUIRE_JETPACK=csv-mounts=all",
            "NVIDIA_REQUIRE_CUDA=cuda>=2",
            "CUDA_VERSION=9.1.2",
        ];
        let expected = ["NVIDIA_REQUIRE_X arch>=7", "NVIDIA_REQUIRE_CUDA cuda>=2"];
        assert_eq!(requirements(&env), expected);
        assert_eq!(requirements(&["CUDA_VERSION=9.1.2"]), ["CUDA_VERSION cuda>=9.1"]);
        assert_eq!(requirements(&["CUDA_VERSION=9"]), ["CUDA_VERSION cuda>=9"]);
    }

    /// Each is looked at once, however many there are.
    #[test]
    fn many_requirements_are_the_last_of_each_name() {
        let entries: Vec<String> =
            (0..300_000).map(|n| format!("NVIDIA_REQUIRE_{}=a={n}", n % 150_000)).collect();
        let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
        let shown = requirements(&entries);
        assert_eq!(shown.len(), 150_000);
        assert_eq!(shown[1], "NVIDIA_REQUIRE_1 a=150001");
    }

    #[test]
    fn an_environment_that_no_program_could_have_is_refused() {
        let sized = |bytes: usize| {
            let entry = "a".repeat(bytes - 1);
            Environment::of([entry.as_str()].into_iter(), &[]).check_size()
        };
        sized(LARGEST).unwrap();
        let error = sized(LARGEST + 1).unwrap_err();
        assert_eq!(error.code(), Code::InvalidRequest);
        assert!(error.to_string().contains("6291457 bytes"), "{error}");
    }

    #[test]
    fn requirements_are_disabled_by_the_words_of_go() {
        for (word, disabled) in
            [("1", true), ("True", true), ("t", true), ("yes", false), ("0", false), ("", false)]
        {
            let entry = format!("NVIDIA_DISABLE_REQUIRE={word}");
            let env = ["NVIDIA_REQUIRE_CUDA=cuda>=1", &entry];
            assert_eq!(requirements(&env).is_empty(), disabled, "{word}");
        }
    }
}
