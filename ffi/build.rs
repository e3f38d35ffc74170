//! Compiles what is in C, and gives `libscr.so` its soname.

fn main() {
    println!("cargo:rerun-if-changed=src/configf.c");
    println!("cargo:rerun-if-changed=src/place.c");
    // Which MPI `mpi-sys` was bound to hangs on it; the folder of the build is kept per MPI.
    println!("cargo:rerun-if-env-changed=MPICC");
    println!("cargo:rerun-if-changed=src/mpi_header.c");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libscr.so");
    // MPI and the threads of the library call back into it: a program that unloads it would leave them without code.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    cc::Build::new()
        .files(["src/configf.c", "src/place.c"])
        .include("include")
        .warnings(true)
        .compile("scr_c");
    let mpicc = std::env::var("MPICC").unwrap_or_else(|_| "mpicc".to_owned());
    cc::Build::new().compiler(mpicc).file("src/mpi_header.c").warnings(true).compile("scr_mpi_header");
}
