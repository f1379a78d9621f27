//! Symbolic links of libraries: the SONAME that programs ask for → the file that was mounted.

use nvidia_oci::{Link, Result};

use crate::target::Target;

/// Makes the links; what is there already and differs is replaced.
pub(crate) fn apply(target: &mut Target<'_>, links: &[Link]) -> Result<()> {
    for link in links {
        if let Some(place) = target.place(&link.link)? {
            target.put_link(&place, &link.target)?;
        }
    }
    Ok(())
}
