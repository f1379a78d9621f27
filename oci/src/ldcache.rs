//! glibc's `ld.so.cache`: reading, merging, writing.
