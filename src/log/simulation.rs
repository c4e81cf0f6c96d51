//! A disk that tears writes, loses what was not synced, fails, and stops at any operation.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::storage::{LogFile, LogStorage};

const SECTOR_BYTES: usize = 512;

/// A small generator of random numbers (xorshift), so that a seed names a run.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[derive(Debug, Clone)]
enum Operation {
    Write(u64, Vec<u8>),
    Truncate(u64),
}

#[derive(Debug, Default, Clone)]
struct FileState {
    current: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Operation>,
}

impl Operation {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write(offset, written) => {
                let end = *offset as usize + written.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*offset as usize..end].copy_from_slice(written);
            }
            Self::Truncate(length) => bytes.resize(*length as usize, 0),
        }
    }

    /// Each sector of a write reaches the disk or does not.
    fn apply_torn(&self, bytes: &mut Vec<u8>, random: &mut Random) {
        let Self::Write(offset, written) = self else {
            if random.one_in(2) {
                self.apply(bytes);
            }
            return;
        };
        let mut at = 0;
        while at < written.len() {
            let count =
                (SECTOR_BYTES - (*offset as usize + at) % SECTOR_BYTES).min(written.len() - at);
            if random.one_in(2) {
                Self::Write(offset + at as u64, written[at..at + count].to_vec()).apply(bytes);
            }
            at += count;
        }
    }
}

#[derive(Debug)]
struct Disk {
    files: BTreeMap<String, FileState>,
    random: Random,
    operations_left: Option<u64>,
    failure_one_in: Option<u64>,
    generation: u64,
}

impl Disk {
    fn step(&mut self) -> io::Result<()> {
        if let Some(left) = &mut self.operations_left {
            if *left == 0 {
                return Err(io::Error::other("the machine has stopped"));
            }
            *left -= 1;
        }
        Ok(())
    }

    fn fails(&mut self) -> bool {
        match self.failure_one_in {
            Some(n) => self.random.one_in(n),
            None => false,
        }
    }
}

/// The simulated disk.
#[derive(Debug, Clone)]
pub struct SimulatedStorage(Arc<Mutex<Disk>>);

impl SimulatedStorage {
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Disk {
            files: BTreeMap::new(),
            random: Random::new(seed),
            operations_left: None,
            failure_one_in: None,
            generation: 0,
        })))
    }

    /// The machine stops after this many more operations.
    pub fn stop_after(&self, operations: u64) {
        self.0.lock().operations_left = Some(operations);
    }

    /// One write or sync in `n` fails.
    pub fn fail_one_in(&self, n: Option<u64>) {
        self.0.lock().failure_one_in = n;
    }

    /// Power is lost and comes back: unsynced sectors are there or not.
    pub fn crash(&self) {
        let mut disk = self.0.lock();
        let Disk { files, random, .. } = &mut *disk;
        for file in files.values_mut() {
            let mut bytes = file.durable.clone();
            for operation in std::mem::take(&mut file.pending) {
                operation.apply_torn(&mut bytes, random);
            }
            file.durable = bytes.clone();
            file.current = bytes;
        }
        disk.operations_left = None;
        disk.failure_one_in = None;
        disk.generation += 1;
    }

    /// Flips a bit of a file.
    pub fn flip_bit(&self, name: &str, offset: usize) {
        let mut disk = self.0.lock();
        let file = disk.files.get_mut(name).expect("the file is there");
        file.current[offset] ^= 4;
        file.durable[offset] ^= 4;
    }

    pub fn names(&self) -> Vec<String> {
        self.0.lock().files.keys().cloned().collect()
    }

    pub fn length(&self, name: &str) -> usize {
        self.0.lock().files[name].current.len()
    }
}

impl LogStorage for SimulatedStorage {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.names())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let disk = self.0.lock();
        if !disk.files.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Arc::new(SimulatedFile {
            disk: Arc::clone(&self.0),
            name: name.to_owned(),
            generation: disk.generation,
        }))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        {
            let mut disk = self.0.lock();
            disk.step()?;
            if disk.fails() {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            disk.files.insert(name.to_owned(), FileState::default());
        }
        self.open(name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut disk = self.0.lock();
        disk.step()?;
        disk.files.remove(name);
        Ok(())
    }
}

#[derive(Debug)]
struct SimulatedFile {
    disk: Arc<Mutex<Disk>>,
    name: String,
    generation: u64,
}

impl SimulatedFile {
    fn with<T>(
        &self,
        run: impl FnOnce(&mut FileState, &mut Random, bool) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut disk = self.disk.lock();
        assert_eq!(
            disk.generation, self.generation,
            "no handle outlives a crash"
        );
        disk.step()?;
        let fails = disk.fails();
        let Disk { files, random, .. } = &mut *disk;
        let file = files
            .get_mut(&self.name)
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        run(file, random, fails)
    }
}

impl LogFile for SimulatedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let disk = self.disk.lock();
        let file = disk
            .files
            .get(&self.name)
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let start = offset as usize;
        let bytes = file
            .current
            .get(start..start + buffer.len())
            .ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.with(|file, random, fails| {
            let count = match fails {
                true => random.below(bytes.len() as u64 + 1) as usize,
                false => bytes.len(),
            };
            let operation = Operation::Write(offset, bytes[..count].to_vec());
            operation.apply(&mut file.current);
            file.pending.push(operation);
            match fails {
                true => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
                false => Ok(()),
            }
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|file, random, fails| {
            let pending = std::mem::take(&mut file.pending);
            for operation in pending {
                if fails {
                    // The system forgets that these were not written: no later sync helps.
                    operation.apply_torn(&mut file.durable, random);
                } else {
                    operation.apply(&mut file.durable);
                }
            }
            match fails {
                true => Err(io::Error::from_raw_os_error(libc::EIO)),
                false => Ok(()),
            }
        })
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.with(|file, _, fails| {
            if fails {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            Operation::Truncate(length).apply(&mut file.current);
            file.pending.push(Operation::Truncate(length));
            Ok(())
        })
    }

    fn length(&self) -> io::Result<u64> {
        let disk = self.disk.lock();
        Ok(disk
            .files
            .get(&self.name)
            .map_or(0, |f| f.current.len() as u64))
    }
}
