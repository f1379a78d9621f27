//! Calls into a loaded libcuda: the one place of these tests with `unsafe`.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint};
use std::path::Path;
use std::ptr;

use libloading::{Library, Symbol};

type GetInt = unsafe extern "C" fn(*mut c_int) -> c_int;

/// A loaded libcuda.
pub(crate) struct Cuda(Library);

impl Cuda {
    pub(crate) fn load(path: &Path) -> Self {
        // SAFETY: the library has no initialisers.
        Self(unsafe { Library::new(path) }.unwrap())
    }

    pub(crate) fn init(&self) -> c_int {
        // SAFETY: the function is documented to have this type.
        unsafe {
            let init: Symbol<'_, unsafe extern "C" fn(c_uint) -> c_int> =
                self.0.get("cuInit").unwrap();
            init(0)
        }
    }

    pub(crate) fn driver_version(&self) -> Result<c_int, c_int> {
        self.get("cuDriverGetVersion")
    }

    pub(crate) fn device_count(&self) -> Result<c_int, c_int> {
        self.get("cuDeviceGetCount")
    }

    pub(crate) fn device_count_into_null(&self) -> c_int {
        // SAFETY: the function is documented to have this type and to refuse a null pointer.
        unsafe {
            let count: Symbol<'_, GetInt> = self.0.get("cuDeviceGetCount").unwrap();
            count(ptr::null_mut())
        }
    }

    fn get(&self, name: &str) -> Result<c_int, c_int> {
        let mut value = -1;
        // SAFETY: the functions asked for have this type and write one integer.
        let error = unsafe {
            let function: Symbol<'_, GetInt> = self.0.get(name).unwrap();
            function(&raw mut value)
        };
        if error == 0 { Ok(value) } else { Err(error) }
    }
}
