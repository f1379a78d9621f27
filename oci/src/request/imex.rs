//! IMEX channels, by which GPUs of several nodes share memory: asked for by volume mounts
//! (`imex/0`) or by a variable, beside GPUs and never alone.

use std::collections::BTreeSet;

use super::shortened;
use crate::{Code, Error, Result};

/// NVIDIA's largest channel id (NVIDIA Container Toolkit, `internal/nvcaps`).
const LAST: u32 = 1_048_575;

/// Which IMEX channels are asked for, and by what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImexRequest {
    pub channels: ImexChannels,
    /// `NVIDIA_IMEX_CHANNELS=0,1`
    pub source: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImexChannels {
    /// All that the node has.
    All,
    /// Never empty.
    Listed(BTreeSet<u32>),
}

impl ImexRequest {
    /// Reads a list; `None` if it asks for nothing.
    ///
    /// # Errors
    /// [`Code::ImexChannel`]: an item is no channel.
    pub(super) fn of<'a>(
        items: impl Iterator<Item = &'a str> + Clone,
        source: String,
    ) -> Result<Option<Self>> {
        let items = items.map(str::trim).filter(|item| !item.is_empty());
        if items.clone().any(|item| matches!(item, "none" | "void")) {
            return Ok(None);
        }
        if items.clone().any(|item| item == "all") {
            return Ok(Some(Self { channels: ImexChannels::All, source }));
        }
        let channel = |item: &str| {
            let digits = item.strip_prefix("channel").unwrap_or(item);
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            let id = digits.parse().ok().filter(|id| is_number && *id <= LAST);
            id.ok_or_else(|| {
                let item = shortened(item);
                let what = format!("{source} asks for {item:?}, which is no IMEX channel");
                Error::new(Code::ImexChannel, format!("{what}: they are 0 to {LAST}"))
            })
        };
        let ids: BTreeSet<u32> = items.map(channel).collect::<Result<_>>()?;
        let channels = ImexChannels::Listed(ids);
        let asks = channels != ImexChannels::Listed(BTreeSet::new());
        Ok(asks.then_some(Self { channels, source }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(list: &str) -> Result<Option<ImexChannels>> {
        let request = ImexRequest::of(list.split(','), format!("A={list}"))?;
        Ok(request.map(|request| request.channels))
    }

    #[test]
    fn lists_of_channels() {
        let listed = |ids: &[u32]| Some(ImexChannels::Listed(ids.iter().copied().collect()));
        for (list, expected) in [
            ("0", listed(&[0])),
            (" 2,0,, channel7 ,2", listed(&[0, 2, 7])),
            ("1048575", listed(&[1_048_575])),
            ("", None),
            (" , ", None),
            ("none", None),
            ("0,void", None),
            ("all", Some(ImexChannels::All)),
            ("0,all", Some(ImexChannels::All)),
        ] {
            assert_eq!(of(list).unwrap(), expected, "{list:?}");
        }
    }

    #[test]
    fn what_is_no_channel_is_refused() {
        for list in
            ["x", "0,-1", "+1", "1048576", "99999999999", "channel", "ALL", "0-2", "\u{661}"]
        {
            let error = of(list).unwrap_err();
            assert_eq!(error.code(), Code::ImexChannel, "{list}");
            assert!(error.to_string().contains(&format!("A={list} asks for")), "{error}");
        }
    }
}
