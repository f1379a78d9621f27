//! Which way each name of a request goes: to a CDI spec that describes it, or to what is there.
//!
//! The environment's names mean what is there; CDI's mean what a spec describes, and NVIDIA's own
//! kinds what is there where no spec does, or where the one that does is stale.

use super::functions::Function;
use super::{gpus, stale};
use crate::cdi::{Found, QualifiedName, Registry};
use crate::request::{Selection, Selector, Source};
use crate::{
    Code, Config, Error, Handler, Host, Inventory, Mode, Request, Result, Spec, StaleSpec, policy,
};

/// Kinds of GPUs that a name without kind may be of, beside the default kind.
const GPU_KINDS: [&str; 2] = ["nvidia.com/gpu", "k8s.device-plugin.nvidia.com/gpu"];
/// Described by nobody: what is there at the time.
const JUST_IN_TIME: &str = "runtime.nvidia.com/gpu";
const MANAGEMENT: &str = "management.nvidia.com/gpu";

/// Where what a request names comes from.
#[derive(Clone, Debug, Default)]
pub(super) struct Ways {
    /// What is asked for of the GPUs that are there; `None`: not even the driver.
    pub(super) live: Option<Request>,
    /// Devices that specs describe, each once, in the order of the request.
    pub(super) described: Vec<QualifiedName>,
    /// Nodes of NVIDIA's other devices.
    pub(super) functions: Vec<Function>,
    /// Whether it is to manage all GPUs.
    pub(super) manages: bool,
    pub(super) warnings: Vec<String>,
}

impl Ways {
    /// Whether a device of NVIDIA's is among them.
    pub(super) fn are_nvidias(&self) -> bool {
        self.live.is_some()
            || !self.functions.is_empty()
            || self.described.iter().any(|name| policy::is_nvidia(name.vendor()))
    }
}

/// Whether names without kind are looked up in specs first.
fn looks_up(config: &Config, handler: Handler) -> bool {
    handler == Handler::NvidiaCdi || config.mode == Mode::Cdi
}

/// The specs that may describe what is asked for; none for whoever asks for what is there.
pub(super) fn specs(
    host: &Host,
    config: &Config,
    handler: Handler,
    request: &Request,
    inventory: &Inventory,
) -> Registry {
    let mut wanted = Vec::new();
    let bare_kinds = if looks_up(config, handler) {
        vec![config.cdi_default_kind.as_str(), GPU_KINDS[0], GPU_KINDS[1], MANAGEMENT]
    } else {
        GPU_KINDS.to_vec()
    };
    for (name, is_live) in names(&request.gpus, handler, config, inventory) {
        match QualifiedName::parse(&name) {
            Ok(name) => wanted.push(name),
            Err(_) if is_live => {}
            Err(_) => wanted.extend(
                bare_kinds
                    .iter()
                    .map(|kind| QualifiedName { kind: (*kind).to_owned(), device: name.clone() }),
            ),
        }
    }
    wanted.retain(|name| name.kind != JUST_IN_TIME);
    if wanted.is_empty() {
        return Registry::default();
    }
    Registry::of_devices(host, &config.cdi_spec_dirs, &wanted)
}

/// Whether a request can be answered without a look at NVIDIA's driver.
pub(super) fn is_foreign(request: &Request) -> bool {
    let foreign = |selector: &Selector| {
        QualifiedName::parse(&selector.text()).is_ok_and(|name| !policy::is_nvidia(name.vendor()))
    };
    matches!(&request.gpus, Selection::Listed(selectors) if selectors.iter().all(foreign))
}

/// What is asked for, as CDI has it: `all` and `none` are names too. With each, whether it means
/// what is there, so that no spec is looked at.
fn names(
    selection: &Selection,
    handler: Handler,
    config: &Config,
    inventory: &Inventory,
) -> Vec<(String, bool)> {
    let is_live = |knows: bool| knows && !looks_up(config, handler);
    match selection {
        Selection::All => vec![("all".to_owned(), is_live(true))],
        Selection::DriverOnly => vec![("none".to_owned(), is_live(true))],
        Selection::Listed(selectors) => selectors
            .iter()
            .map(|it| {
                let knows = matches!(it, Selector::Word(_)) || gpus::knows(inventory, it);
                (it.text().into_owned(), is_live(knows))
            })
            .collect(),
    }
}

/// Finds the ways of all names.
///
/// # Errors
/// A name leads nowhere, or to a spec that is stale.
pub(super) fn find(
    host: &Host,
    config: &Config,
    handler: Handler,
    spec: &Spec,
    request: &Request,
    inventory: &Inventory,
    registry: &Registry,
) -> Result<Ways> {
    let may_manage = policy::check_management(MANAGEMENT, spec, config).is_ok();
    let mut finder = Finder {
        host,
        config,
        handler,
        spec,
        may_manage,
        request,
        inventory,
        registry,
        ways: Ways::default(),
        live: Live::default(),
    };
    match &request.gpus {
        Selection::Listed(selectors) => {
            for selector in selectors {
                match selector {
                    Selector::Qualified(text) => finder.qualified(text)?,
                    Selector::Word(word) => finder.word(word)?,
                    bare => finder.bare(bare)?,
                }
            }
        }
        Selection::All => finder.word("all")?,
        Selection::DriverOnly => finder.word("none")?,
    }
    Ok(finder.finish())
}

/// What is asked for of what is there.
#[derive(Default)]
struct Live {
    all: bool,
    driver: bool,
    selectors: Vec<Selector>,
}

struct Finder<'a> {
    host: &'a Host,
    config: &'a Config,
    handler: Handler,
    spec: &'a Spec,
    may_manage: bool,
    request: &'a Request,
    inventory: &'a Inventory,
    registry: &'a Registry,
    ways: Ways,
    live: Live,
}

impl<'a> Finder<'a> {
    fn finish(self) -> Ways {
        let Self { request, live, mut ways, .. } = self;
        let gpus = match live {
            Live { all: true, .. } => Some(Selection::All),
            _ if ways.manages => Some(Selection::All),
            Live { selectors, .. } if !selectors.is_empty() => Some(Selection::Listed(selectors)),
            Live { driver, .. } => driver.then_some(Selection::DriverOnly),
        };
        ways.live = gpus.map(|gpus| Request { gpus, ..request.clone() });
        ways
    }

    /// `all` or `none`.
    fn word(&mut self, word: &str) -> Result<()> {
        if looks_up(self.config, self.handler) {
            return self.bare_name(word);
        }
        self.take_live(word);
        Ok(())
    }

    fn bare(&mut self, selector: &Selector) -> Result<()> {
        if looks_up(self.config, self.handler) {
            return self.bare_name(&selector.text());
        }
        let known = gpus::knows(self.inventory, selector);
        match if known { None } else { self.described(&GPU_KINDS, &selector.text()) } {
            Some(found) => self.take(found),
            None => {
                self.live.selectors.push(selector.clone());
                Ok(())
            }
        }
    }

    /// A name without kind, where CDI's contract holds: of the default kind, of another kind of
    /// NVIDIA's, or of what is there.
    fn bare_name(&mut self, device: &str) -> Result<()> {
        let kind = self.config.cdi_default_kind.as_str();
        // NVIDIA's operator makes management the default of all.
        let kind =
            if policy::is_management(kind) && !self.may_manage { GPU_KINDS[0] } else { kind };
        let in_order = [&[kind], &GPU_KINDS[..]].concat();
        if kind != JUST_IN_TIME
            && let Some(found) = self.described(&in_order, device)
        {
            return self.take(found);
        }
        let vendor = kind.split('/').next().unwrap_or_default();
        if policy::is_management(kind) && device == "all" && self.config.just_in_time {
            self.ways.manages = true;
        } else if policy::is_nvidia(vendor) && (self.config.just_in_time || kind == JUST_IN_TIME) {
            self.take_live(device);
        } else if self.may_manage
            && let Some(found) = self.described(&[MANAGEMENT], device)
        {
            return self.take(found);
        } else {
            let (kind, device) = (kind.to_owned(), device.to_owned());
            return Err(self.unknown(&QualifiedName { kind, device }));
        }
        Ok(())
    }

    fn qualified(&mut self, text: &str) -> Result<()> {
        let name = QualifiedName::parse(text).map_err(|error| {
            let what = format!("{} asks for {text:?}", self.request.source);
            Error::caused(Code::InvalidRequest, what, error)
        })?;
        if policy::is_management(text) {
            policy::check_management(text, self.spec, self.config)?;
        }
        if name.kind == JUST_IN_TIME {
            self.take_live(&name.device);
            return Ok(());
        }
        match self.registry.find(&name) {
            Some(found) => self.take(found),
            None if self.config.just_in_time && self.take_just_in_time(&name)? => Ok(()),
            None => Err(self.unknown(&name)),
        }
    }

    /// The first that describes it.
    fn described(&self, kinds: &[&str], device: &str) -> Option<Found<'a>> {
        let registry = self.registry;
        kinds.iter().find_map(|kind| {
            let (kind, device) = ((*kind).to_owned(), device.to_owned());
            registry.find(&QualifiedName { kind, device })
        })
    }

    /// Takes what a spec describes, unless it is stale.
    fn take(&mut self, found: Found<'_>) -> Result<()> {
        let name = found.name();
        let kernel = self.inventory.driver_version.as_deref();
        let nvidias = policy::is_nvidia(name.vendor());
        let Some(fault) = nvidias.then(|| stale::fault(self.host, kernel, found)).flatten() else {
            if !self.ways.described.contains(&name) {
                self.ways.described.push(name);
            }
            return Ok(());
        };
        let what = format!("CDI spec {} {fault}", found.file.path.display());
        // A name that only the spec knows is not to be found elsewhere.
        let is_known = match Selector::parse(&name.device) {
            Selector::Unknown(word) => {
                matches!(word.as_str(), "all" | "none") || !GPU_KINDS.contains(&name.kind.as_str())
            }
            _ => true,
        };
        let heals = is_known && self.config.stale_spec == StaleSpec::Heal;
        if heals && self.take_just_in_time(&name)? {
            self.ways.warnings.push(format!("{what}: {name} is given from what is there"));
            return Ok(());
        }
        let what = format!("{} asks for {name}: {what}", self.request.source);
        Err(Error::new(Code::StaleSpec, what))
    }

    /// Takes a device of NVIDIA's kinds from what is there; says whether it is one.
    fn take_just_in_time(&mut self, name: &QualifiedName) -> Result<bool> {
        if name.kind == MANAGEMENT && name.device == "all" {
            self.ways.manages = true;
        } else if GPU_KINDS.contains(&name.kind.as_str()) {
            self.take_live(&name.device);
        } else if let Some(function) = Function::named(name)? {
            if let Some(why) = self.disregarded(&function) {
                let what = format!("{} asks for {name}, which does not count", self.request.source);
                self.ways.warnings.push(format!("{what}: {why}"));
            } else if !self.ways.functions.contains(&function) {
                self.ways.functions.push(function);
            }
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Why a function is not given: what holds for IMEX channels by the variable of their own holds
    /// for their CDI names too.
    fn disregarded(&self, function: &Function) -> Option<&'static str> {
        let Function::ImexChannel(number) = function else { return None };
        if self.config.ignore_imex_channels {
            return Some("ignore-imex-channel-requests is set");
        }
        let of_image = matches!(self.request.source, Source::Variables(_));
        (of_image && number.is_none())
            .then_some("only annotations and volume mounts may ask for all channels")
    }

    fn take_live(&mut self, device: &str) {
        match device {
            "all" => self.live.all = true,
            "none" => self.live.driver = true,
            device => self.live.selectors.push(Selector::parse(device)),
        }
    }

    fn unknown(&self, name: &QualifiedName) -> Error {
        // Files that do not have the name were not parsed.
        let registry =
            Registry::of_kinds(self.host, &self.config.cdi_spec_dirs, &[name.kind.as_str()]);
        let instead = registry.instead_of(name);
        let described = match registry.conflict(name) {
            Some(_) => "more than one CDI spec describes",
            None => "no CDI spec describes",
        };
        let what = format!("{} asks for {name}, which {described}; {instead}", self.request.source);
        Error::new(Code::UnknownDevice, what)
    }
}
