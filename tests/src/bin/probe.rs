//! Runs inside containers and prints, as one JSON object, what a process there sees.
//!
//! Of the standard library only, so that the harness can build it with plain `rustc` as a static
//! program too, for images that have no loader. The fields are those of `tests::Sight`.
//!
//! `probe [--cuda] [MAJOR:MINOR…]`: with `--cuda` it loads `libcuda.so.1` as a CUDA program does;
//! for each device number it makes a node of its own and tries to open that.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let cuda = arguments.iter().position(|a| a == "--cuda").map(|at| arguments.remove(at));
    let fields = [
        ("devices", object(device_nodes(Path::new("/dev")).iter().map(|node| opened(node)))),
        ("made", object(arguments.iter().map(|number| made(number)))),
        ("mounts", array(mount_points().iter().map(|point| quoted(point)))),
        ("env", object(std::env::vars().map(|(name, value)| (name, quoted(&value))))),
        ("cuda", cuda.map_or_else(|| "null".to_owned(), |_| sys::cuda())),
    ];
    let text = object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
    #[allow(clippy::print_stdout)]
    {
        println!("{text}");
    }
}

/// NVIDIA's nodes below `dir`.
fn device_nodes(dir: &Path) -> Vec<PathBuf> {
    let mut nodes = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if !entry.file_name().to_string_lossy().starts_with("nvidia") {
            continue;
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            nodes.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|e| e.path()));
        } else {
            nodes.push(path);
        }
    }
    nodes.sort();
    nodes
}

/// Path and the errno of opening it, 0 if that worked.
fn opened(node: &Path) -> (String, String) {
    (node.display().to_string(), errno(File::open(node).map(drop)).to_string())
}

fn made(number: &str) -> (String, String) {
    let (major, minor) = number.split_once(':').expect("MAJOR:MINOR");
    let node = PathBuf::from(format!("/dev/made-{major}-{minor}"));
    let result = sys::mknod(&node, major.parse().expect("major"), minor.parse().expect("minor"));
    let outcome = errno(result.and_then(|()| File::open(&node).map(drop)));
    let _ = fs::remove_file(&node);
    (number.to_owned(), outcome.to_string())
}

fn errno(result: std::io::Result<()>) -> i32 {
    result.err().map_or(0, |error| error.raw_os_error().unwrap_or(-1))
}

fn mount_points() -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().filter_map(|line| line.split(' ').nth(4)).map(str::to_owned).collect()
}

fn object(fields: impl Iterator<Item = (String, String)>) -> String {
    let fields: Vec<String> = fields.map(|(k, v)| format!("{}:{v}", quoted(&k))).collect();
    format!("{{{}}}", fields.join(","))
}

fn array(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

fn quoted(text: &str) -> String {
    let mut json = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => json.extend(['\\', character]),
            c if u32::from(c) < 0x20 => {
                let _ = write!(json, "\\u{:04x}", u32::from(c));
            }
            c => json.push(c),
        }
    }
    json.push('"');
    json
}

/// The C library.
mod sys {
    use std::ffi::{CString, c_char, c_int, c_uint, c_ulong};
    use std::io;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    unsafe extern "C" {
        #[link_name = "gnu_dev_makedev"]
        safe fn makedev(major: c_uint, minor: c_uint) -> c_ulong;
        #[link_name = "mknod"]
        fn libc_mknod(path: *const c_char, mode: c_uint, device: c_ulong) -> c_int;
    }

    pub(super) fn mknod(path: &Path, major: u32, minor: u32) -> io::Result<()> {
        const CHARACTER_DEVICE: c_uint = 0o020_666;
        let path = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: the path is a string that ends in NUL and lives through the call.
        match unsafe { libc_mknod(path.as_ptr(), CHARACTER_DEVICE, makedev(major, minor)) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    #[cfg(target_feature = "crt-static")]
    pub(super) fn cuda() -> String {
        super::object([("error".to_owned(), super::quoted("a static program"))].into_iter())
    }

    #[cfg(not(target_feature = "crt-static"))]
    pub(super) fn cuda() -> String {
        use std::ffi::{CStr, c_void};

        const RTLD_NOW: c_int = 2;
        unsafe extern "C" {
            fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
            fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
            safe fn dlerror() -> *const c_char;
        }

        let failure = || {
            let text = dlerror();
            // SAFETY: dlerror returns NULL or a string that stays until the next dl call.
            let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
            let text = text.map_or_else(|| "unknown".into(), CStr::to_string_lossy);
            super::object([("error".to_owned(), super::quoted(&text))].into_iter())
        };
        // SAFETY: a driver library is loaded and its two functions called with the types that
        // CUDA documents: CUresult cuInit(unsigned), CUresult cuDeviceGetCount(int *).
        unsafe {
            let library = dlopen(c"libcuda.so.1".as_ptr(), RTLD_NOW);
            if library.is_null() {
                return failure();
            }
            let init = dlsym(library, c"cuInit".as_ptr());
            let count = dlsym(library, c"cuDeviceGetCount".as_ptr());
            if init.is_null() || count.is_null() {
                return failure();
            }
            let init: extern "C" fn(c_uint) -> c_int = std::mem::transmute(init);
            let get_count: extern "C" fn(*mut c_int) -> c_int = std::mem::transmute(count);
            let init = init(0);
            let mut count: c_int = -1;
            let result = get_count(&raw mut count);
            let fields = [("init", init), ("result", result), ("count", count)];
            super::object(fields.into_iter().map(|(k, v)| (k.to_owned(), v.to_string())))
        }
    }
}
