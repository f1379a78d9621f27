//! Cache → bytes.

use std::collections::HashMap;

use super::{
    Cache, CacheError, ENTRY_SIZE, EXTENSION_MAGIC, HEADER_SIZE, MAGIC, SECTION_GENERATOR,
    SECTION_HWCAPS,
};

/// The header's flags byte: little-endian.
const LITTLE_ENDIAN: u8 = 2;

impl Cache {
    /// The cache as a file holds it.
    ///
    /// # Errors
    /// It is larger than offsets of 32 bits can tell.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CacheError> {
        let count = self.entries.len();
        let mut strings = Strings::new(HEADER_SIZE + count * ENTRY_SIZE, 2 * count);
        let mut table = Vec::with_capacity(count * ENTRY_SIZE);
        for entry in &self.entries {
            table.extend(entry.flags.to_le_bytes());
            table.extend(strings.offset(&entry.key)?.to_le_bytes());
            table.extend(strings.offset(&entry.value)?.to_le_bytes());
            table.extend(entry.os_version.to_le_bytes());
            table.extend(entry.hwcap.to_le_bytes());
        }
        let mut hwcaps = Vec::new();
        for name in &self.hwcaps {
            hwcaps.extend(strings.offset(name)?.to_le_bytes());
        }

        let strings_end = HEADER_SIZE + table.len() + strings.bytes.len();
        let extension_start = strings_end.next_multiple_of(4);
        let extension = extension(extension_start, &self.generator, &hwcaps)?;
        let mut file = Vec::with_capacity(extension_start + extension.len());
        file.extend(MAGIC);
        file.extend(to_u32(count)?.to_le_bytes());
        file.extend(to_u32(strings.bytes.len())?.to_le_bytes());
        file.extend([LITTLE_ENDIAN, 0, 0, 0]);
        let offset = if extension.is_empty() { 0 } else { to_u32(extension_start)? };
        file.extend(offset.to_le_bytes());
        file.resize(HEADER_SIZE, 0);
        file.extend(table);
        file.extend(strings.bytes);
        if !extension.is_empty() {
            file.resize(extension_start, 0);
            file.extend(extension);
        }
        Ok(file)
    }
}

/// The extension, for `start` in the file; empty where there is nothing to tell.
fn extension(start: usize, generator: &[u8], hwcaps: &[u8]) -> Result<Vec<u8>, CacheError> {
    let sections: Vec<(u32, &[u8])> = [(SECTION_GENERATOR, generator), (SECTION_HWCAPS, hwcaps)]
        .into_iter()
        .filter(|(_, data)| !data.is_empty())
        .collect();
    let mut head = Vec::new();
    if sections.is_empty() {
        return Ok(head);
    }
    head.extend(EXTENSION_MAGIC.to_le_bytes());
    head.extend(to_u32(sections.len())?.to_le_bytes());
    let head_size = 8 + 16 * sections.len();
    let mut data = Vec::new();
    for (tag, bytes) in sections {
        // hwcaps are numbers of 32 bits.
        data.resize(data.len().next_multiple_of(4), 0);
        head.extend(tag.to_le_bytes());
        head.extend(0_u32.to_le_bytes());
        head.extend(to_u32(start + head_size + data.len())?.to_le_bytes());
        head.extend(to_u32(bytes.len())?.to_le_bytes());
        data.extend(bytes);
    }
    head.extend(data);
    Ok(head)
}

/// The string table: equal strings are stored once.
struct Strings<'a> {
    start: usize,
    bytes: Vec<u8>,
    known: HashMap<&'a [u8], u32>,
}

impl<'a> Strings<'a> {
    /// A table that lies at `start` of the file, of about `count` strings.
    fn new(start: usize, count: usize) -> Self {
        Self { start, bytes: Vec::new(), known: HashMap::with_capacity(count) }
    }

    fn offset(&mut self, text: &'a [u8]) -> Result<u32, CacheError> {
        if let Some(offset) = self.known.get(text) {
            return Ok(*offset);
        }
        let offset = to_u32(self.start + self.bytes.len())?;
        self.bytes.extend(text);
        self.bytes.push(0);
        self.known.insert(text, offset);
        Ok(offset)
    }
}

fn to_u32(number: usize) -> Result<u32, CacheError> {
    u32::try_from(number).map_err(|_| CacheError::TooLarge("more than 4 GiB"))
}
