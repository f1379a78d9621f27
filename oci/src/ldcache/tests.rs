use std::fs;
use std::process::Command;

use proptest::prelude::*;

use super::*;
use crate::elf::testing;

fn ldconfig(arguments: &[&str]) -> String {
    let output = Command::new("/sbin/ldconfig").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_cache_of_this_machine_survives() {
    let dir = tempfile::tempdir().unwrap();
    let (original, copy) = (dir.path().join("original"), dir.path().join("copy"));
    ldconfig(&["-X", "-C", original.to_str().unwrap()]);
    let cache = Cache::parse(&fs::read(&original).unwrap()).unwrap();
    fs::write(&copy, cache.to_bytes().unwrap()).unwrap();
    let shown = |path: &Path| {
        let text = ldconfig(&["-p", "-C", path.to_str().unwrap()]);
        text.split_once('\n').unwrap().1.to_owned()
    };
    assert!(cache.entries().len() > 10);
    assert_eq!(shown(&copy), shown(&original));
}

#[test]
fn glibc_sorts_the_same_way() {
    let dir = tempfile::tempdir().unwrap();
    let names = [
        "libcuda.so.1",
        "libcuda.so.10",
        "libcuda.so.9",
        "libcuda1.so.1",
        "libcuda12.so.1",
        "libcudart.so.1",
        "libcu.so.1",
        "libcuda-a.so.1",
        "libcuda_a.so.1",
        "libnvidia-ml.so.1",
        "libnvidia-ml.so.550.163.01",
        "libnvidia-ml.so.20240116000000",
    ];
    let mut ours = Cache::default();
    for name in names {
        let path = dir.path().join(name);
        fs::write(&path, testing::library(name, true, true)).unwrap();
        ours.insert(name, &path, Class::Elf64, Machine::X86_64);
    }
    // The 32-bit twin of one of them: the same name under other flags.
    let narrow = dir.path().join("narrow");
    fs::create_dir(&narrow).unwrap();
    let path = narrow.join("libcuda.so.1");
    fs::write(&path, testing::library("libcuda.so.1", false, true)).unwrap();
    ours.insert("libcuda.so.1", &path, Class::Elf32, Machine::X86);
    let (conf, file) = (dir.path().join("conf"), dir.path().join("cache"));
    fs::write(&conf, format!("{}\n{}\n", dir.path().display(), narrow.display())).unwrap();
    ldconfig(&["-X", "-f", conf.to_str().unwrap(), "-C", file.to_str().unwrap()]);
    let theirs = Cache::parse(&fs::read(&file).unwrap()).unwrap();
    let in_dir: Vec<Entry> = theirs
        .entries()
        .iter()
        .filter(|entry| entry.path().starts_with(dir.path()))
        .cloned()
        .collect();
    assert_eq!(in_dir, ours.entries());
}

fn entry(name: &str, path: &str, hwcap: u64) -> Entry {
    Entry { flags: 0x0303, key: name.into(), value: path.into(), os_version: 0, hwcap }
}

#[test]
fn ours_comes_before_the_image_s() {
    let hwcap = 0x4000_0000_0000_0000;
    let mut cache = Cache {
        entries: vec![
            entry("libcuda.so.1", "/hwcaps/libcuda.so.1", hwcap),
            entry("libcuda.so.1", "/image/libcuda.so.1", 0),
        ],
        generator: b"ldconfig".to_vec(),
        hwcaps: vec![b"x86-64-v3".to_vec()],
    };
    for _ in 0..2 {
        let path = Path::new("/driver/libcuda.so.1");
        assert!(cache.insert("libcuda.so.1", path, Class::Elf64, Machine::X86_64));
    }
    let paths: Vec<_> = cache.entries().iter().map(Entry::path).collect();
    assert_eq!(
        paths,
        ["/driver/libcuda.so.1", "/hwcaps/libcuda.so.1", "/image/libcuda.so.1"].map(Path::new)
    );
    let found = cache.find("libcuda.so.1", Class::Elf64, Machine::X86_64);
    assert_eq!(found, Some(Path::new("/driver/libcuda.so.1")));
    assert_eq!(cache.find("libcuda.so.1", Class::Elf32, Machine::X86), None);
}

#[test]
fn a_cache_behind_the_old_format_is_found() {
    let mut new = Cache::default();
    new.insert("libc.so.6", Path::new("/lib/libc.so.6"), Class::Elf64, Machine::X86_64);
    for (entries, alignment) in [(0_u32, 8), (1, 8), (1, 4)] {
        let mut file = OLD_MAGIC.to_vec();
        file.push(0);
        file.extend(entries.to_le_bytes());
        file.resize(file.len() + entries as usize * OLD_ENTRY_SIZE, 0);
        file.resize(file.len().next_multiple_of(alignment), 0);
        file.extend(new.to_bytes().unwrap());
        assert_eq!(Cache::parse(&file).unwrap(), new);
    }
}

#[test]
fn damage_is_named() {
    let mut cache = Cache::default();
    cache.insert("libc.so.6", Path::new("/lib/libc.so.6"), Class::Elf64, Machine::X86_64);
    let good = cache.to_bytes().unwrap();
    let with = |at: usize, value: u32| {
        let mut bytes = good.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        Cache::parse(&bytes).unwrap_err()
    };
    assert_eq!(Cache::parse(b"").unwrap_err(), CacheError::NotACache);
    assert_eq!(with(20, u32::MAX), CacheError::Truncated("entries"));
    assert_eq!(with(28, 3), CacheError::ForeignByteOrder);
    assert_eq!(with(32, 4), CacheError::BadExtension(4));
    assert_eq!(with(52, u32::MAX), CacheError::BadString { index: 0, what: "name" });
    let unended = &good[..good.len() - 1];
    assert_eq!(
        Cache::parse(unended).unwrap_err(),
        CacheError::BadString { index: 0, what: "path" }
    );
}

#[test]
fn shared_strings_cannot_fill_the_memory() {
    let count = 3000_u32;
    let mut file = MAGIC.to_vec();
    file.extend(count.to_le_bytes());
    file.resize(HEADER_SIZE, 0);
    let text = u32::try_from(HEADER_SIZE).unwrap() + count * 24;
    for _ in 0..count {
        for field in [0x0303, text, text, 0, 0, 0] {
            file.extend(field.to_le_bytes());
        }
    }
    file.extend([b'a'; 4000]);
    file.push(0);
    assert!(matches!(Cache::parse(&file), Err(CacheError::TooLarge(_))));
}

fn any_cache() -> impl Strategy<Value = Cache> {
    let entry = ("[a-c1-3.]{0,6}", "[/a-z]{0,9}", any::<u8>(), any::<u32>(), any::<u64>());
    let entry = entry.prop_map(|(key, value, flags, os_version, hwcap)| Entry {
        flags: flags.into(),
        key: key.into_bytes(),
        value: value.into_bytes(),
        os_version,
        hwcap,
    });
    let names = |count| prop::collection::vec("[a-z0-9-]{1,9}".prop_map(String::into_bytes), count);
    (prop::collection::vec(entry, 0..20), "[ -~]{0,9}", names(0..4)).prop_map(
        |(mut entries, generator, hwcaps)| {
            entries.sort_by(Entry::order);
            Cache { entries, generator: generator.into_bytes(), hwcaps }
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read(cache in any_cache()) {
        prop_assert_eq!(Cache::parse(&cache.to_bytes().unwrap()).unwrap(), cache);
    }

    #[test]
    fn an_insertion_keeps_the_order(mut cache in any_cache(), name in "[a-c1-3.]{1,6}") {
        cache.insert(&name, Path::new("/x"), Class::Elf64, Machine::X86_64);
        prop_assert!(cache.entries.is_sorted_by(|a, b| a.order(b).is_le()));
        prop_assert_eq!(
            cache.find(&name, Class::Elf64, Machine::X86_64),
            Some(Path::new("/x"))
        );
    }

    #[test]
    fn a_changed_cache_is_refused_or_takes_what_is_added(
        cache in any_cache(),
        changes in prop::collection::vec((0_usize..600, any::<u8>()), 1..12),
    ) {
        let mut bytes = cache.to_bytes().unwrap();
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        if let Ok(mut cache) = Cache::parse(&bytes) {
            cache.insert("libx.so.1", Path::new("/x"), Class::Elf64, Machine::X86_64);
            let cache = Cache::parse(&cache.to_bytes().unwrap()).unwrap();
            let found = cache.find("libx.so.1", Class::Elf64, Machine::X86_64);
            prop_assert_eq!(found, Some(Path::new("/x")));
        }
    }

    #[test]
    fn any_bytes_behind_the_magic_never_panic(tail in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Cache::parse(&[MAGIC, &tail].concat());
        let _ = Cache::parse(&[OLD_MAGIC, &tail].concat());
    }
}
