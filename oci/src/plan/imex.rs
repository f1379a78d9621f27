//! IMEX channels: those that exist are given to who asked for them; one that does not is made only
//! for who could make it as well.

use super::nodes::Nodes;
use crate::gpu::ImexInventory;
use crate::request::ImexChannels;
use crate::{Code, Config, Error, Result, policy};

impl Nodes<'_> {
    /// Gives the channels that were asked for.
    ///
    /// # Errors
    /// [`Code::ImexChannel`]: one is not there and is not made.
    pub(super) fn give_imex(&mut self, imex: &ImexInventory, config: &Config) -> Result<()> {
        let source = &imex.asked.source;
        let here = match imex.existing.as_slice() {
            [] => "none".to_owned(),
            ids => shown(ids),
        };
        let refused = |what: String| {
            let what = format!("{source} asks for {what}; this node has {here}");
            Err(Error::new(Code::ImexChannel, what))
        };
        if let ImexChannels::Listed(ids) = &imex.asked.channels {
            let known = |id: &u32| imex.channels.iter().any(|(known, _)| known == id);
            if let Some(id) = ids.iter().find(|id| !known(id)) {
                return refused(format!("IMEX channel {id}, which this driver cannot have"));
            }
        }
        if imex.channels.is_empty() {
            return refused("IMEX channels".to_owned());
        }
        let may_be_made =
            self.may_make_nodes && config.make_imex_channels && policy::is_privileged(self.spec);
        for (id, node) in &imex.channels {
            if !node.exists && !may_be_made {
                return refused(format!("IMEX channel {id}, which does not exist"));
            }
            self.give(node, &format!("IMEX channel, {source}"))?;
        }
        Ok(())
    }
}

/// `0, 1, 2 and 2045 more`
fn shown(ids: &[u32]) -> String {
    const SHOWN: usize = 16;
    let listed: Vec<String> = ids.iter().take(SHOWN).map(u32::to_string).collect();
    let mut line = listed.join(", ");
    if ids.len() > SHOWN {
        line.push_str(&format!(" and {} more", ids.len() - SHOWN));
    }
    line
}
