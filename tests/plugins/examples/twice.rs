//! A scheme that writes everything twice: other bytes first, then the right ones. Each member keeps the data of its left neighbour.
//! While there is a file `WRONG`, a rebuild writes the other bytes last.

use scr_plugin_api::{Bytes, KvTree, PluginError, ReceiveFrom, Scheme, SendTo, Set, SetShape};
use std::path::Path;

struct Twice {
    is_wrong: bool,
}

scr_plugin_api::export_scheme! {
    formats: 1..=1,
    new: Twice::new,
}

impl Twice {
    fn new(options: &KvTree) -> Result<Self, PluginError> {
        Ok(Self { is_wrong: options.text("WRONG").is_some_and(|file| Path::new(file).exists()) })
    }
}

impl Scheme for Twice {
    fn losses_survived(&self, set_size: u32) -> Result<u32, PluginError> {
        Ok(u32::from(set_size > 1))
    }

    fn recoverable(&self, lost: &[bool]) -> bool {
        lost.iter().filter(|&&lost| lost).count() < 2
    }

    fn redundancy_len(&self, shape: &SetShape<'_>) -> Result<u64, PluginError> {
        Ok(shape.data_lens[before(shape.rank, shape.data_lens.len() as u32) as usize])
    }

    fn protect(&self, set: &dyn Set) -> Result<(), PluginError> {
        let keeps = |_| true;
        to_the_right(set, keeps)
    }

    fn rebuild(&self, set: &dyn Set, _format: u32) -> Result<(), PluginError> {
        let (rank, size) = (set.rank(), set.size());
        let (left, right) = (before(rank, size), (rank + 1) % size);
        let (mut copy, mut data) = (Vec::new(), Vec::new());
        if set.lost(left) {
            copy = read(set.redundancy())?;
        }
        if set.lost(rank) {
            data = vec![0; set.data_len(rank) as usize];
        }
        let sends = [SendTo { to: left, bytes: &copy }];
        let mut receives = [ReceiveFrom { from: right, bytes: &mut data }];
        set.exchange(&sends[..usize::from(set.lost(left))], &mut receives[..usize::from(set.lost(rank))])?;
        if set.lost(rank) {
            write_twice(set.data(), &data, self.is_wrong)?;
        }
        to_the_right(set, |member| set.lost(member))
    }
}

fn to_the_right(set: &dyn Set, keeps: impl Fn(u32) -> bool) -> Result<(), PluginError> {
    let (rank, size) = (set.rank(), set.size());
    let (left, right) = (before(rank, size), (rank + 1) % size);
    let data = read(set.data())?;
    let mut copy = vec![0; set.data_len(left) as usize];
    let sends = [SendTo { to: right, bytes: &data }];
    let mut receives = [ReceiveFrom { from: left, bytes: &mut copy }];
    set.exchange(&sends[..usize::from(keeps(right))], &mut receives[..usize::from(keeps(rank))])?;
    if keeps(rank) {
        write_twice(set.redundancy(), &copy, false)?;
    }
    Ok(())
}

fn before(rank: u32, size: u32) -> u32 {
    (rank + size - 1) % size
}

fn read(file: &dyn Bytes) -> Result<Vec<u8>, PluginError> {
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(0, &mut bytes).map(|()| bytes)
}

fn write_twice(file: &dyn Bytes, bytes: &[u8], is_wrong: bool) -> Result<(), PluginError> {
    let other: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
    let (first, second) = if is_wrong { (bytes, &*other) } else { (&*other, bytes) };
    file.write_at(0, first)?;
    file.write_at(0, second)
}
