//! What an image needs of driver and GPUs (`NVIDIA_REQUIRE_*`), held against what there is.
//!
//! Values come without NVML: the driver's version from the kernel, its CUDA version, the compute
//! capability and brand of a GPU from tables ([`tables`]). What the tables do not know is warned
//! of and passes; so does an unmet compute capability or brand, which are as good as the tables.

mod expression;
mod tables;
#[cfg(test)]
mod tests;

use std::fmt;

use self::expression::{Atom, Expression, Operator, Property, Version};
use self::tables::Cuda;
use crate::request::{DISABLE_REQUIRE, Requirement, shortened};
use crate::{Code, Error, Gpu, Requirements, Result};

/// What requirements are held against.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    driver: String,
    cuda: Option<Cuda>,
    gpus: Vec<GpuFacts>,
}

#[derive(Clone, Debug)]
struct GpuFacts {
    name: String,
    arch: Option<Version>,
    /// What NVML may call it; empty: not known.
    brands: &'static [&'static str],
}

/// What is said of requirements that do not stop the container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// `NVIDIA_REQUIRE_CUDA=cuda>=12.2`
    pub(crate) met: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

/// What becomes of an expression or a part of it, with the parts that say so; the better first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Met,
    /// It cannot be known, or is not enforced.
    Doubtful(String),
    Unmet(String),
}

impl Facts {
    /// Of the kernel driver's version and the GPUs that the container gets; `device_id` tells the
    /// PCI device id of one.
    pub(crate) fn of(driver: &str, gpus: &[&Gpu], device_id: impl Fn(&Gpu) -> Option<u16>) -> Self {
        let gpus = gpus.iter().map(|gpu| GpuFacts {
            name: format!("GPU {} ({})", gpu.index, gpu.model),
            arch: device_id(gpu).and_then(tables::compute_capability),
            brands: tables::brands(&gpu.model),
        });
        Self { driver: driver.to_owned(), cuda: tables::cuda(driver), gpus: gpus.collect() }
    }
}

/// NVIDIA's own images have requirements of less than 4 KiB.
const LONGEST: usize = 64 << 10;

/// Holds `requirements` against `facts`; `mode` is what becomes of those that are not met.
///
/// # Errors
/// [`Code::RequirementUnmet`], [`Code::RequirementInvalid`], if they are enforced.
pub(crate) fn check(
    requirements: &[Requirement],
    mode: Requirements,
    facts: impl FnOnce() -> Facts,
) -> Result<Findings> {
    let mut findings = Findings::default();
    // Most containers require nothing: no file is read for them.
    if mode == Requirements::Off || requirements.is_empty() {
        return Ok(findings);
    }
    let facts = &facts();
    for Requirement { variable, expression } in requirements {
        findings.cut();
        let refusal = match Expression::parse(expression) {
            _ if expression.len() > LONGEST => {
                let what = format!("{variable} is {} bytes long", expression.len());
                Error::new(Code::RequirementInvalid, what)
            }
            Err(part) => {
                let what = format!("{variable} has {:?}, which is no requirement", shortened(part));
                Error::new(Code::RequirementInvalid, what)
            }
            Ok(parsed) => match parsed.outcome(facts) {
                Outcome::Met => {
                    findings.met.push(format!("{variable}={}", shortened(expression)));
                    continue;
                }
                Outcome::Doubtful(doubt) => {
                    findings.warnings.push(format!("{variable} asks for {doubt}; not enforced"));
                    continue;
                }
                Outcome::Unmet(part) => {
                    let what = format!("{variable} asks for {part}");
                    Error::new(Code::RequirementUnmet, what)
                }
            },
        };
        // The version of an image is no expression that somebody wrote.
        let is_written = refusal.code() == Code::RequirementUnmet || variable != "CUDA_VERSION";
        if mode == Requirements::Enforce && is_written {
            return Err(refusal);
        }
        findings.warnings.push(format!("{refusal} ({DISABLE_REQUIRE} silences this)"));
    }
    findings.cut();
    Ok(findings)
}

impl Findings {
    /// An image may have any number of requirements; what is told of them has an end.
    fn cut(&mut self) {
        const TOLD: usize = 16;
        for lines in [&mut self.met, &mut self.warnings] {
            if lines.len() > TOLD {
                lines.truncate(TOLD);
                lines.push("and so on".to_owned());
            }
        }
    }
}

impl Expression<'_> {
    /// The best of the alternatives.
    fn outcome(&self, facts: &Facts) -> Outcome {
        let mut outcomes = self.alternatives.iter().map(|atoms| {
            let of_atom = |atom| Atom::outcome(atom, facts);
            atoms.iter().map(of_atom).max().unwrap_or(Outcome::Met)
        });
        let first = outcomes.next().unwrap_or(Outcome::Met);
        let others = outcomes.len();
        // Of alternatives that are equally bad the first is the one that people mean.
        let best = outcomes.fold(first, |best, next| match (&best, &next) {
            (Outcome::Unmet(_), Outcome::Unmet(_))
            | (Outcome::Doubtful(_), Outcome::Doubtful(_)) => best,
            _ => best.min(next),
        });
        match best {
            Outcome::Unmet(part) if others > 0 => {
                Outcome::Unmet(format!("{part} (nor is any of {others} alternatives met)"))
            }
            best => best,
        }
    }
}

impl Atom<'_> {
    fn outcome(&self, facts: &Facts) -> Outcome {
        match self.property {
            Property::Driver => match Version::parse(&facts.driver) {
                Some(driver) => self.enforced(self.compares(&driver), &facts.driver),
                None => self.doubtful(format_args!("driver {} cannot be compared", facts.driver)),
            },
            Property::Cuda => match &facts.cuda {
                Some(Cuda::Known(cuda)) => {
                    let here = format!("{cuda} with driver {}", facts.driver);
                    self.enforced(self.compares(cuda), &here)
                }
                Some(Cuda::AtLeast(cuda)) if self.holds_from(cuda) => Outcome::Met,
                Some(Cuda::AtLeast(_)) | None => self.doubtful(format_args!(
                    "which CUDA version driver {} has is not known",
                    facts.driver
                )),
            },
            Property::Arch | Property::Brand => {
                facts.gpus.iter().map(|gpu| self.of_gpu(gpu)).max().unwrap_or(Outcome::Met)
            }
            Property::Unknown(name) => {
                self.doubtful(format_args!("what {} means is not known", shortened(name)))
            }
        }
    }

    fn of_gpu(&self, gpu: &GpuFacts) -> Outcome {
        let (is_met, here) = match (self.property, &gpu.arch, gpu.brands) {
            (Property::Arch, Some(arch), _) => (self.compares(arch), arch.to_string()),
            (Property::Brand, _, brands) if !brands.is_empty() => {
                let is = brands.iter().any(|brand| brand.eq_ignore_ascii_case(self.value));
                (is == (self.operator == Operator::Equal), brands.join(" or "))
            }
            _ => {
                let name = self.property;
                return self.doubtful(format_args!("the {name} of {} is not known", gpu.name));
            }
        };
        if is_met {
            return Outcome::Met;
        }
        self.doubtful(format_args!("{} has {} {here}", gpu.name, self.property))
    }

    fn compares(&self, here: &Version) -> bool {
        // An atom that compares versions has one.
        self.version.as_ref().is_none_or(|wanted| self.operator.holds(here.cmp(wanted)))
    }

    /// Whether it holds for `least` and whatever is later.
    fn holds_from(&self, least: &Version) -> bool {
        matches!(self.operator, Operator::AtLeast | Operator::Greater) && self.compares(least)
    }

    fn enforced(&self, is_met: bool, here: &str) -> Outcome {
        if is_met {
            return Outcome::Met;
        }
        Outcome::Unmet(format!("{}, and {} here is {here}", shortened(self.text), self.property))
    }

    fn doubtful(&self, why: fmt::Arguments<'_>) -> Outcome {
        Outcome::Doubtful(format!("{}, and {why}", shortened(self.text)))
    }
}
