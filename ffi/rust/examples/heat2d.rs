//! heat2d in Rust: the example heat2d.c, with the crate scr.
//!
//! Each rank owns a block of rows of the plate and swaps its border rows with the two neighbours in every step. All of SCR is
//! in `checkpoint`, `restart` and `main`.
//!
//! ```sh
//! SCR_DIR=/opt/scr cargo build --release --example heat2d
//! mpirun -n 4 target/release/examples/heat2d SIZE STEPS EVERY RESULT [KILL_RANK KILL_STEP]
//! ```

use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use scr::{Flags, Library};
use std::error::Error;
use std::fs;
use std::io::Write;

fn main() {
    let universe = mpi::initialize().expect("MPI cannot be initialized");
    if let Err(error) = run(&universe) {
        eprintln!("heat2d: rank {}: {error}", universe.world().rank());
        // The other ranks would wait for this one.
        universe.world().abort(1);
    }
}

fn run(universe: &Universe) -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize, otherwise: i64| arguments.get(at).map_or(Ok(otherwise), |text| text.parse());
    let (size, steps, every) = (number(1, 512)? as usize, number(2, 500)?, number(3, 50)?);
    let (kill_rank, kill_step) = (number(5, -1)?, number(6, 0)?);

    let mut plate = Plate::new(universe.world(), size);
    scr::config(&format!("SCR_CHECKPOINT_INTERVAL={every}"))?;
    let mut library = Library::init(universe)?;
    let (mut step, mut stop) = (restart(&mut library, &mut plate)?, false);
    while step < steps && !stop {
        plate.step();
        step += 1;
        if library.need_checkpoint()? {
            checkpoint(&mut library, &plate, step);
            stop = library.should_exit()?;
        }
        if i64::from(plate.world.rank()) == kill_rank && step == kill_step {
            std::process::abort();
        }
    }
    if step == steps {
        plate.write_answer(arguments.get(4).map_or("heat.out", String::as_str))?;
    }
    library.finalize()?;
    Ok(())
}

/// A checkpoint that fails is no reason to stop: the run continues without it.
fn checkpoint(library: &mut Library<'_>, plate: &Plate, step: i64) {
    let name = format!("heat.{step:06}");
    let mut save = || -> Result<(), Box<dyn Error>> {
        let output = library.output(&name, Flags::CHECKPOINT)?;
        fs::write(output.route(plate.file_of(&name))?, plate.bytes())?;
        output.complete()?;
        Ok(())
    };
    match save() {
        Ok(()) if plate.world.rank() == 0 => println!("heat2d: checkpoint {name} is complete"),
        Ok(()) => (),
        Err(error) => eprintln!("heat2d: rank {}: {error}", plate.world.rank()),
    }
}

/// Loads the newest checkpoint that all ranks can read. Gives its step, or 0 if there is none.
fn restart(library: &mut Library<'_>, plate: &mut Plate) -> Result<i64, Box<dyn Error>> {
    while let Some(restart) = library.restart()? {
        let name = restart.name().to_owned();
        // No `?`: a rank that cannot read its file says so to the others.
        let path = restart.route(plate.file_of(&name)).ok();
        let found = path.and_then(|path| fs::read(path).ok()).filter(|found| plate.fits(found));
        if !restart.complete(found.is_some()) {
            continue;
        }
        // Only now: all ranks have read the same checkpoint.
        plate.load(&found.unwrap_or_default());
        let step = name.trim_start_matches("heat.").parse()?;
        if plate.world.rank() == 0 {
            println!("heat2d: restarted from {name} at step {step}");
        }
        return Ok(step);
    }
    Ok(0)
}

struct Plate {
    world: SimpleCommunicator,
    size: usize,
    /// First row of this rank.
    first: usize,
    /// Its rows, with one border row above and one below.
    rows: Vec<Vec<f64>>,
}

impl Plate {
    fn new(world: SimpleCommunicator, size: usize) -> Self {
        let first = first_row(&world, size, world.rank());
        let last = first_row(&world, size, world.rank() + 1);
        let row = |row: usize| (0..size).map(|column| initial(size, row, column)).collect();
        let mut rows = vec![vec![0.0; size]];
        rows.extend((first..last).map(row));
        rows.push(vec![0.0; size]);
        Self { world, size, first, rows }
    }

    /// Every inner point moves towards the mean of its four neighbours; the edges stay as they are.
    fn step(&mut self) {
        self.swap_borders();
        let mut next = self.rows.clone();
        for (i, rows) in self.rows.windows(3).enumerate() {
            let row = self.first + i;
            if row == 0 || row == self.size - 1 {
                continue;
            }
            let [above, here, below] = rows else { continue };
            for j in 1..self.size - 1 {
                let around = above[j] + below[j] + here[j - 1] + here[j + 1];
                next[i + 1][j] = here[j] + 0.2 * (around - 4.0 * here[j]);
            }
        }
        self.rows = next;
    }

    fn swap_borders(&mut self) {
        let (rank, last) = (self.world.rank(), self.rows.len() - 1);
        let (top, bottom) = (self.rows[1].clone(), self.rows[last - 1].clone());
        mpi::request::scope(|scope| {
            let mut sends = Vec::new();
            if rank > 0 {
                sends.push(self.world.process_at_rank(rank - 1).immediate_send_with_tag(scope, &top[..], 1));
            }
            if rank + 1 < self.world.size() {
                sends.push(self.world.process_at_rank(rank + 1).immediate_send_with_tag(
                    scope,
                    &bottom[..],
                    2,
                ));
            }
            if rank + 1 < self.world.size() {
                self.world.process_at_rank(rank + 1).receive_into_with_tag(&mut self.rows[last][..], 1);
            }
            if rank > 0 {
                self.world.process_at_rank(rank - 1).receive_into_with_tag(&mut self.rows[0][..], 2);
            }
            sends.into_iter().for_each(|send| _ = send.wait());
        });
    }

    fn file_of(&self, name: &str) -> String {
        format!("{name}/rank_{}.heat", self.world.rank())
    }

    /// This rank's rows.
    fn own(&self) -> &[Vec<f64>] {
        &self.rows[1..self.rows.len() - 1]
    }

    fn bytes(&self) -> Vec<u8> {
        self.own().iter().flatten().flat_map(|value| value.to_ne_bytes()).collect()
    }

    fn fits(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.own().len() * self.size * 8
    }

    fn load(&mut self, bytes: &[u8]) {
        let last = self.rows.len() - 1;
        let values =
            bytes.chunks_exact(8).map(|value| f64::from_ne_bytes(value.try_into().unwrap_or_default()));
        self.rows[1..last].iter_mut().flatten().zip(values).for_each(|(here, value)| *here = value);
    }

    /// Gathers the rows at rank 0 in their order, and writes them.
    fn write_answer(&self, path: &str) -> std::io::Result<()> {
        if self.world.rank() > 0 {
            self.own().iter().for_each(|row| self.world.process_at_rank(0).send_with_tag(&row[..], 3));
            return Ok(());
        }
        let mut file = std::io::BufWriter::new(fs::File::create(path)?);
        file.write_all(&self.bytes())?;
        for from in 1..self.world.size() {
            let rows = first_row(&self.world, self.size, from)..first_row(&self.world, self.size, from + 1);
            for _ in rows {
                let mut row = vec![0.0_f64; self.size];
                self.world.process_at_rank(from).receive_into_with_tag(&mut row[..], 3);
                row.iter().try_for_each(|value| file.write_all(&value.to_ne_bytes()))?;
            }
        }
        println!("heat2d: the answer is in {path}");
        file.flush()
    }
}

/// First row of a rank: rows are dealt out as evenly as they go.
fn first_row(world: &SimpleCommunicator, size: usize, rank: i32) -> usize {
    size * rank as usize / world.size() as usize
}

/// Cold everywhere, apart from two hot spots and one edge.
fn initial(size: usize, row: usize, column: usize) -> f64 {
    if row == 0 {
        return 100.0;
    }
    if row.abs_diff(size / 3) < size / 10 && column.abs_diff(size / 4) < size / 10 {
        return 80.0;
    }
    if row.abs_diff(2 * size / 3) < size / 12 && column.abs_diff(3 * size / 5) < size / 8 {
        return 60.0 + 0.25 * (column % 7) as f64;
    }
    0.0
}
