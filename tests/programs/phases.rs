//! phases MODE: what becomes of datasets and of the job where a program ends with an error. All ranks do the same.
//!
//! - `fail` writes checkpoint `one`, drops `cut`, writes `two`, and ends with an error
//! - `throw` panics while it reads a checkpoint
//! - `read` reads the checkpoint with a communicator of its own, begins again with the world, and finalizes

use mpi::traits::*;
use scr::{Flags, Library};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let universe = mpi::initialize().ok_or("MPI cannot be initialized")?;
    let rank = universe.world().rank();
    let mode = std::env::args().nth(1).unwrap_or_default();
    if let Err(error) = scr::config("SCR_FLUSHH=1") {
        println!("CONFIG {} {error}", error.code());
    }
    scr::config("SCR_FLUSH=7")?;
    println!("SCR_FLUSH={}", scr::config("SCR_FLUSH")?.unwrap_or_default());
    let mut library = match mode.as_str() {
        "read" => Library::init_comm(&universe, &universe.world().duplicate())?,
        _ => Library::init(&universe)?,
    };
    if mode == "fail" {
        for name in ["one", "cut", "two"] {
            let output = library.output(name, Flags::CHECKPOINT)?;
            std::fs::write(output.route(format!("{name}/rank_{rank}"))?, name)?;
            if name == "cut" {
                drop(output);
                println!("CUT {name}");
            } else {
                output.complete()?;
                println!("WROTE {name}");
            }
        }
        return Err("the program fails".into());
    }
    if let Some(restart) = library.restart()? {
        assert!(mode != "throw", "a fault of the program");
        let name = restart.name().to_owned();
        let path = restart.route(format!("{name}/rank_{rank}")).ok();
        let found = path.and_then(|path| std::fs::read(path).ok());
        if restart.complete(found.is_some_and(|found| found == name.as_bytes())) {
            println!("READ {name}");
        }
    }
    if mode == "read" {
        library.recover(&universe.world())?;
        if let Some(restart) = library.restart()? {
            println!("AGAIN {}", restart.name());
            restart.complete(true);
        }
    }
    library.finalize()?;
    Ok(())
}
