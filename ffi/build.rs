//! Compiles the one C file, and gives `libscr.so` its soname.

fn main() {
    println!("cargo:rerun-if-changed=src/configf.c");
    // Which MPI `mpi-sys` was bound to hangs on it; the folder of the build is kept per MPI.
    println!("cargo:rerun-if-env-changed=MPICC");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libscr.so");
    cc::Build::new().file("src/configf.c").include("include").warnings(true).compile("scr_configf");
}
