//! Bytes → cache. Nothing that the bytes say is believed before it is compared with their length.

use super::{
    Cache, ENTRY_SIZE, EXTENSION_MAGIC, Entry, HEADER_SIZE, MAGIC, MAX_SIZE, OLD_ENTRY_SIZE,
    OLD_HEADER_SIZE, OLD_MAGIC, SECTION_GENERATOR, SECTION_HWCAPS,
};

/// `PATH_MAX`, with its NUL.
const MAX_STRING: usize = 4096;
/// glibc itself writes two.
const MAX_SECTIONS: u32 = 16;
/// glibc has three for x86-64.
const MAX_HWCAPS: usize = 64;

/// What is wrong with a cache, and at which place of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    #[error("not an ld.so.cache")]
    NotACache,
    #[error("an ld.so.cache of the other byte order")]
    ForeignByteOrder,
    #[error("the ld.so.cache ends within its {0}")]
    Truncated(&'static str),
    #[error("entry {index} of the ld.so.cache has a {what} outside of the file or without end")]
    BadString { index: usize, what: &'static str },
    #[error("the ld.so.cache has a damaged extension at byte {0}")]
    BadExtension(usize),
    #[error("the ld.so.cache is too large: {0}")]
    TooLarge(&'static str),
}

impl Cache {
    /// Reads a cache.
    ///
    /// # Errors
    /// It is none, or damaged, or larger than any real one.
    pub fn parse(bytes: &[u8]) -> Result<Self, CacheError> {
        if bytes.len() as u64 > MAX_SIZE {
            return Err(CacheError::TooLarge("more than 4 MiB"));
        }
        let start = start(bytes)?;
        // Strings are counted from the new format's header, extensions from the file's start.
        let body = bytes.get(start..).unwrap_or_default();
        let count = to_usize(u32_at(body, 20).ok_or(CacheError::Truncated("header"))?);
        let order = *body.get(28).ok_or(CacheError::Truncated("header"))?;
        // 0: not told (glibc before 2.32), 2: little-endian; 1 is invalid, 3 big-endian.
        if !matches!(order & 3, 0 | 2) {
            return Err(CacheError::ForeignByteOrder);
        }
        let extension = to_usize(u32_at(body, 32).ok_or(CacheError::Truncated("header"))?);
        let table = count
            .checked_mul(ENTRY_SIZE)
            .and_then(|size| body.get(HEADER_SIZE..HEADER_SIZE.checked_add(size)?))
            .ok_or(CacheError::Truncated("entries"))?;

        let mut cache = Self { entries: Vec::with_capacity(count), ..Self::default() };
        let mut total = 0;
        for (index, entry) in table.chunks_exact(ENTRY_SIZE).enumerate() {
            let string = |at, what| {
                let offset = u32_at(entry, at).unwrap_or_default();
                string(body, offset).ok_or(CacheError::BadString { index, what })
            };
            let (key, value) = (string(4, "name")?, string(8, "path")?);
            // Entries may share their bytes: without this, a small file could fill the memory.
            total += key.len() + value.len() + 2;
            if total as u64 > MAX_SIZE {
                return Err(CacheError::TooLarge("more than 4 MiB of strings"));
            }
            cache.entries.push(Entry {
                flags: u32_at(entry, 0).unwrap_or_default(),
                key: key.to_vec(),
                value: value.to_vec(),
                os_version: u32_at(entry, 12).unwrap_or_default(),
                hwcap: u64_at(entry, 16).unwrap_or_default(),
            });
        }
        if extension != 0 {
            cache.parse_extension(bytes, body, extension)?;
        }
        // ldconfig has sorted it; what else wrote it may not have, and bisection would miss.
        cache.entries.sort_by(Entry::order);
        Ok(cache)
    }

    fn parse_extension(
        &mut self,
        bytes: &[u8],
        body: &[u8],
        start: usize,
    ) -> Result<(), CacheError> {
        let bad = CacheError::BadExtension(start);
        let header = bytes.get(start..).ok_or_else(|| bad.clone())?;
        let sections = u32_at(header, 4).ok_or_else(|| bad.clone())?;
        if u32_at(header, 0) != Some(EXTENSION_MAGIC) || sections > MAX_SECTIONS {
            return Err(bad);
        }
        for index in 0..to_usize(sections) {
            let field = |at| u32_at(header, 8 + index * 16 + at).ok_or_else(|| bad.clone());
            let (tag, offset, size) = (field(0)?, to_usize(field(8)?), to_usize(field(12)?));
            let data = offset
                .checked_add(size)
                .and_then(|end| bytes.get(offset..end))
                .ok_or_else(|| bad.clone())?;
            match tag {
                SECTION_GENERATOR if size <= MAX_STRING => self.generator = data.to_vec(),
                SECTION_HWCAPS if size % 4 == 0 && size / 4 <= MAX_HWCAPS => {
                    self.hwcaps = data
                        .chunks_exact(4)
                        .map(|field| string(body, u32_at(field, 0)?).map(<[u8]>::to_vec))
                        .collect::<Option<_>>()
                        .ok_or_else(|| bad.clone())?;
                }
                SECTION_GENERATOR | SECTION_HWCAPS => return Err(bad),
                // As in glibc: a section of a later version is passed over.
                _ => {}
            }
        }
        Ok(())
    }
}

/// Where the header of the new format is.
fn start(bytes: &[u8]) -> Result<usize, CacheError> {
    if bytes.starts_with(MAGIC) {
        return Ok(0);
    }
    if !bytes.starts_with(OLD_MAGIC) {
        return Err(CacheError::NotACache);
    }
    let count = to_usize(u32_at(bytes, 12).ok_or(CacheError::Truncated("header"))?);
    let end = count
        .checked_mul(OLD_ENTRY_SIZE)
        .and_then(|size| size.checked_add(OLD_HEADER_SIZE))
        .ok_or(CacheError::Truncated("old entries"))?;
    // Aligned as a 64-bit number is: to 8 bytes, to 4 on i386.
    [8, 4]
        .into_iter()
        .map(|alignment| end.next_multiple_of(alignment))
        .find(|start| bytes.get(*start..).is_some_and(|rest| rest.starts_with(MAGIC)))
        .ok_or(CacheError::NotACache)
}

/// The NUL-terminated string at `offset`.
fn string(body: &[u8], offset: u32) -> Option<&[u8]> {
    let rest = body.get(to_usize(offset)..)?;
    let end = rest.iter().take(MAX_STRING).position(|byte| *byte == 0)?;
    rest.get(..end)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(field.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(field.try_into().ok()?))
}

fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
