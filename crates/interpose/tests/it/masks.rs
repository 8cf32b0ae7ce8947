//! The mask of new files' bits is kept in mind, and is right whoever changes it.

use crate::run::{Place, compiled, is_able};

#[test]
fn new_files_have_the_mask_that_holds() {
    let build = Place::new();
    let Some(program) = compiled(build.all.path(), "masks.c", &[]) else { return };
    if !is_able() {
        return;
    }
    for what in ["after_each_other", "beside", "child", "by_a_thread"] {
        Place::new().check(&[program.to_str().unwrap(), what]);
    }
    // A program that was executed has the mask of who did.
    Place::new().sh("umask 022; : > a; umask 077; sh -c ': > b'; (umask 0; : > c); : > d");
}
