//! Links the `libscr.so` of the installed tree that `SCR_DIR` names, or the one that the linker finds by itself.

fn main() {
    println!("cargo:rerun-if-env-changed=SCR_DIR");
    if let Some(tree) = std::env::var_os("SCR_DIR") {
        let lib = std::path::Path::new(&tree).join("lib");
        println!("cargo:rustc-link-search=native={}", lib.display());
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}", lib.display());
    }
    println!("cargo:rustc-link-lib=dylib=scr");
}
