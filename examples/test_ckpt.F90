! test_ckpt_F90: writes a checkpoint and checks what it restarts from, with the module scr.
!
!   mpif90 test_ckpt.F90 -o test_ckpt_F90 -lscrf        mpirun -n 4 ./test_ckpt_F90
program test_ckpt
    use mpi
    use scr
    implicit none

    integer, parameter :: values = 1000
    character(len=SCR_MAX_FILENAME) :: name, path
    integer :: rank, ierror, have, valid, step, unit, status, i, failures
    integer :: found(values)

    failures = 0
    step = 0
    call MPI_Init(ierror)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
    call scr_init(ierror)
    call expect('scr_init')

    call scr_have_restart(have, name, ierror)
    call expect('scr_have_restart')
    if (have == 1) then
        call scr_start_restart(name, ierror)
        call expect('scr_start_restart')
        read (name(6:), *) step
        call scr_route_file(file_of(step), path, ierror)
        call expect('scr_route_file')
        open (newunit=unit, file=trim(path), form='unformatted', status='old', iostat=status)
        if (status == 0) read (unit, iostat=status) found
        if (status == 0) close (unit, iostat=status)
        valid = 0
        if (status == 0 .and. all(found == [(value_of(step, i), i=1, values)])) valid = 1
        if (valid == 0) failures = failures + 1
        call scr_complete_restart(valid, ierror)
        call expect('scr_complete_restart')
        if (rank == 0) print '("Restarted from ckpt.", i0, ".")', step
    end if

    step = step + 1
    write (name, '("ckpt.", i0)') step
    call scr_start_output(name, SCR_FLAG_CHECKPOINT, ierror)
    call expect('scr_start_output')
    call scr_route_file(file_of(step), path, ierror)
    call expect('scr_route_file')
    open (newunit=unit, file=trim(path), form='unformatted', status='replace', iostat=status)
    if (status == 0) write (unit, iostat=status) [(value_of(step, i), i=1, values)]
    if (status == 0) close (unit, iostat=status)
    valid = merge(1, 0, status == 0)
    call scr_complete_output(valid, ierror)
    call expect('scr_complete_output')
    if (rank == 0) print '("Completed ckpt.", i0, ".")', step

    call scr_finalize(ierror)
    call expect('scr_finalize')
    call MPI_Allreduce(MPI_IN_PLACE, failures, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
    if (rank == 0 .and. failures == 0) print '("All was right.")'
    call MPI_Finalize(ierror)
    if (failures > 0) error stop 1

contains

    subroutine expect(call_name)
        character(len=*), intent(in) :: call_name
        character(len=SCR_MAX_FILENAME) :: text
        if (ierror == SCR_SUCCESS) return
        failures = failures + 1
        call scr_last_error(text)
        print '("test_ckpt_F90: rank ", i0, ": ", a, ": ", a)', rank, call_name, trim(text)
    end subroutine

    integer function value_of(at, i)
        integer, intent(in) :: at, i
        value_of = at * 1000003 + rank * 1009 + i
    end function

    function file_of(at) result(file)
        integer, intent(in) :: at
        character(len=SCR_MAX_FILENAME) :: file
        write (file, '("ckpt.", i0, "/rank_", i0, ".ckpt")') at, rank
    end function
end program
