//! A directory of a root filesystem, held open: entries are made in it by plain names, complete
//! or not at all (a temporary name, then a rename), and never through a link.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, fchmod, futimens, mkdirat};
use nix::sys::time::TimeSpec;
use nix::unistd::{
    Gid, Uid, UnlinkatFlags, fchown, fchownat, getegid, geteuid, linkat, symlinkat, unlinkat,
};
use rustix::fs::{XattrFlags, fgetxattr, flistxattr, flistxattr_query, fsetxattr};

/// Names that another process left behind are passed by.
const MAX_TRIES: usize = 16;

/// The kernel's limit on the list of attributes, and on the value of one (`XATTR_LIST_MAX`).
const MAX_XATTR: usize = 65536;

/// User and group, as they are stored in the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    pub uid: u32,
    pub gid: u32,
}

impl Owner {
    /// Whose the entries are that it makes.
    fn of_this_process() -> Self {
        Self { uid: geteuid().as_raw(), gid: getegid().as_raw() }
    }

    fn ids(self) -> (Option<Uid>, Option<Gid>) {
        (Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)))
    }
}

/// What a directory has beside its entries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attributes {
    pub owner: Owner,
    pub mode: u32,
    pub xattrs: Vec<(CString, Vec<u8>)>,
    /// Access and modification: seconds and nanoseconds.
    times: Option<[(i64, i64); 2]>,
}

impl Attributes {
    pub(crate) fn new(owner: Owner, mode: u32) -> Self {
        Self { owner, mode, ..Self::default() }
    }
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct Directory {
    fd: OwnedFd,
    /// Whether nobody else looks at it yet, so that a free name can be taken directly.
    own: bool,
}

impl Directory {
    pub(crate) fn held(fd: OwnedFd) -> Self {
        Self { fd, own: false }
    }

    /// The same, of a tree that is still ours alone.
    pub(crate) fn into_own(self) -> Self {
        Self { own: true, ..self }
    }

    /// Puts a regular file at `name` in place of what is there.
    pub(crate) fn put_file(
        &self,
        name: &OsStr,
        bytes: &[u8],
        owner: Owner,
        mode: u32,
    ) -> io::Result<()> {
        self.put(name, |temporary| {
            let flags = OFlag::O_WRONLY
                | OFlag::O_CREAT
                | OFlag::O_EXCL
                | OFlag::O_NOFOLLOW
                | OFlag::O_CLOEXEC;
            let mut file = File::from(openat(&self.fd, temporary, flags, Mode::empty())?);
            file.write_all(bytes)?;
            set_owner_and_mode(&file, owner, mode)
        })
    }

    /// Puts a symbolic link at `name` in place of what is there.
    pub(crate) fn put_link(&self, name: &OsStr, target: &Path, owner: Owner) -> io::Result<()> {
        self.put(name, |temporary| {
            symlinkat(target, &self.fd, temporary)?;
            if owner != Owner::of_this_process() {
                let (uid, gid) = owner.ids();
                fchownat(&self.fd, temporary, uid, gid, AtFlags::AT_SYMLINK_NOFOLLOW)?;
            }
            Ok(())
        })
    }

    /// Makes the directory `name`. `None` if another process made one meanwhile.
    pub(crate) fn make_directory(
        &self,
        name: &OsStr,
        attributes: &Attributes,
    ) -> io::Result<Option<Self>> {
        let make = |name: &OsStr| {
            mkdirat(&self.fd, name, Mode::S_IRWXU)?;
            let made = self.subdirectory(name)?;
            made.set_attributes(attributes)?;
            Ok(made)
        };
        if self.own {
            return make(name).map(Some);
        }
        let (temporary, made) = self.temporary(make)?;
        let renamed = rustix::fs::renameat_with(
            &self.fd,
            &temporary,
            &self.fd,
            name,
            rustix::fs::RenameFlags::NOREPLACE,
        );
        match renamed {
            Ok(()) => Ok(Some(made)),
            Err(error) => {
                self.discard(&temporary);
                if error == rustix::io::Errno::EXIST { Ok(None) } else { Err(error.into()) }
            }
        }
    }

    /// Makes `name` another name of the file `first` of the directory `there`.
    pub(crate) fn put_hard_link(
        &self,
        name: &OsStr,
        there: &Self,
        first: &OsStr,
    ) -> io::Result<()> {
        Ok(linkat(&there.fd, first, &self.fd, name, AtFlags::empty())?)
    }

    pub(crate) fn is_own(&self) -> bool {
        self.own
    }

    /// Removes the file or link `name`.
    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir)?)
    }

    pub(crate) fn attributes(&self) -> io::Result<Attributes> {
        let metadata = File::from(self.fd.try_clone()?).metadata()?;
        Ok(Attributes {
            owner: Owner { uid: metadata.uid(), gid: metadata.gid() },
            mode: metadata.mode() & 0o7777,
            xattrs: self.xattrs()?,
            times: Some([
                (metadata.atime(), metadata.atime_nsec()),
                (metadata.mtime(), metadata.mtime_nsec()),
            ]),
        })
    }

    /// Whether the attribute `name` is there, whatever its value.
    pub(crate) fn has_xattr(&self, name: &CStr) -> io::Result<bool> {
        let mut nothing: [u8; 0] = [];
        match fgetxattr(&self.fd, name, &mut nothing[..]) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Sets all but the times, which the entries that follow would change again.
    pub(crate) fn set_attributes(&self, attributes: &Attributes) -> io::Result<()> {
        set_owner_and_mode(&self.fd, attributes.owner, attributes.mode)?;
        for (name, value) in &attributes.xattrs {
            match fsetxattr(&self.fd, name, value, XattrFlags::empty()) {
                // The image's file system had room for such an attribute, this one has none.
                Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(crate) fn set_times(&self, attributes: &Attributes) -> io::Result<()> {
        if let Some([(atime, atime_nsec), (mtime, mtime_nsec)]) = attributes.times {
            let (accessed, modified) =
                (TimeSpec::new(atime, atime_nsec), TimeSpec::new(mtime, mtime_nsec));
            futimens(&self.fd, &accessed, &modified)?;
        }
        Ok(())
    }

    fn subdirectory(&self, name: &OsStr) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(Self { fd: openat(&self.fd, name, flags, Mode::empty())?, own: self.own })
    }

    /// Makes something by a temporary name and renames it to `name`.
    fn put(&self, name: &OsStr, make: impl Fn(&OsStr) -> io::Result<()>) -> io::Result<()> {
        if self.own {
            match make(name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                answer => return answer,
            }
        }
        let (temporary, ()) = self.temporary(make)?;
        renameat(&self.fd, temporary.as_os_str(), &self.fd, name).map_err(|error| {
            self.discard(&temporary);
            error.into()
        })
    }

    /// Makes something by a name that was free, and says the name.
    fn temporary<T>(&self, make: impl Fn(&OsStr) -> io::Result<T>) -> io::Result<(OsString, T)> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        for _ in 0..MAX_TRIES {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = OsString::from(format!(".nvidia-shim.{}.{number}", std::process::id()));
            match make(&name) {
                Ok(made) => return Ok((name, made)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    self.discard(&name);
                    return Err(error);
                }
            }
        }
        Err(Errno::EEXIST.into())
    }

    /// Removes what was made by a temporary name. The error that led here is the one to tell.
    fn discard(&self, name: &OsStr) {
        let removed = match unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir) {
            Err(Errno::EISDIR) => unlinkat(&self.fd, name, UnlinkatFlags::RemoveDir),
            answer => answer,
        };
        // On a file system that is read-only nothing was made.
        if let Err(error) = removed
            && ![Errno::ENOENT, Errno::EROFS].contains(&error)
        {
            log::warn!("{} stays in the root filesystem: {error}", name.display());
        }
    }

    /// The attributes that a directory of ours must share with the image's: security labels,
    /// access lists, what users set. Those of overlayfs speak of its own layers only.
    fn xattrs(&self) -> io::Result<Vec<(CString, Vec<u8>)>> {
        // Most directories have none, which costs no room to learn.
        if flistxattr_query(&self.fd) == Ok(0) {
            return Ok(Vec::new());
        }
        let mut names = Vec::with_capacity(MAX_XATTR);
        match flistxattr(&self.fd, rustix::buffer::spare_capacity(&mut names)) {
            Ok(_) => {}
            Err(rustix::io::Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
        let mut xattrs = Vec::new();
        let mut value = Vec::with_capacity(MAX_XATTR);
        for name in names.split_inclusive(|byte| *byte == 0) {
            let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
            if name.to_bytes().starts_with(b"trusted.overlay.")
                || name.to_bytes().starts_with(b"user.overlay.")
            {
                continue;
            }
            value.clear();
            fgetxattr(&self.fd, name, rustix::buffer::spare_capacity(&mut value))?;
            xattrs.push((name.to_owned(), value.clone()));
        }
        Ok(xattrs)
    }
}

/// A change of owner clears set-id bits, and the umask may have taken others: mode last.
fn set_owner_and_mode(fd: impl std::os::fd::AsFd, owner: Owner, mode: u32) -> io::Result<()> {
    let (uid, gid) = owner.ids();
    fchown(&fd, uid, gid)?;
    fchmod(&fd, Mode::from_bits_truncate(mode))?;
    Ok(())
}
