//! Symbolic links of libraries: the SONAME that programs ask for → the file that was mounted.

use nvidia_oci::{Link, Result};

use crate::target::{Place, Target};

/// Makes the links; what is there already and differs is replaced.
pub(crate) fn apply(target: &mut Target<'_>, links: &[Link]) -> Result<()> {
    for link in links {
        match target.place(&link.link)? {
            Place::Here(place) => target.put_link(&place, &link.target)?,
            Place::InMount => target.by_hook().links.push(link.clone()),
            Place::Hidden => {}
        }
    }
    Ok(())
}
