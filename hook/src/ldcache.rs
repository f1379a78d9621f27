//! ldcache
