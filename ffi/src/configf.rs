//! `SCR_Configf`: exported from here, and passed on to C, which can receive variable arguments.
//!
//! A library that rustc links does not export functions of C. It exports this function, which only jumps and leaves every
//! argument where the caller put it.

use std::arch::naked_asm;

extern "C" {
    fn scr_configf_formatted();
}

/// `SCR_Configf(format, ...)` of `scr.h`.
///
/// # Safety
/// As for printf.
#[unsafe(naked)]
#[no_mangle]
pub unsafe extern "C" fn SCR_Configf() {
    #[cfg(target_arch = "x86_64")]
    naked_asm!("jmp {}", sym scr_configf_formatted);
    #[cfg(target_arch = "aarch64")]
    naked_asm!("b {}", sym scr_configf_formatted);
    #[cfg(target_arch = "riscv64")]
    naked_asm!("tail {}", sym scr_configf_formatted);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
    compile_error!("give SCR_Configf the jump instruction of this processor");
}
