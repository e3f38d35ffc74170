! heat2d in Fortran 90: the example heat2d.c, with the module scr.
!
! Each rank owns a block of rows of the plate and swaps its border rows with the two neighbours in every step. All of SCR is
! in checkpoint, restart and the main program.
!
!   mpif90 heat2d.f90 -o heat2d_f90 -I$SCR_DIR/include -L$SCR_DIR/lib -lscrf
!   mpirun -n 4 ./heat2d_f90 SIZE STEPS EVERY RESULT [KILL_RANK KILL_STEP]
program heat2d
    use mpi
    use scr
    implicit none

    integer :: rank, ranks, ierror
    integer :: points, steps, every, kill_rank, kill_step  ! SIZE, STEPS, EVERY, ...
    integer :: first, rows, step, stop_now, needed
    character(len=SCR_MAX_FILENAME) :: answer_file
    character(len=64) :: setting, value
    double precision, allocatable :: now(:, :), next(:, :)  ! (column, row); rows 0 and rows+1 are borders

    call MPI_Init(ierror)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
    points = number(1, 512)
    steps = number(2, 500)
    every = number(3, 50)
    call get_command_argument(4, answer_file)
    kill_rank = number(5, -1)
    kill_step = number(6, 0)
    call new_plate()

    write (setting, '("SCR_CHECKPOINT_INTERVAL=", i0)') every
    call scr_config(setting, value, ierror)
    call scr_config('SCR_RESTART_OTHER_RANKS=1', value, ierror)
    call scr_init(ierror)
    if (ierror /= SCR_SUCCESS) call MPI_Abort(MPI_COMM_WORLD, 2, ierror)
    step = restart()
    stop_now = 0
    do while (step < steps .and. stop_now == 0)
        call compute()
        step = step + 1
        call scr_need_checkpoint(needed, ierror)
        if (needed == 1) then
            call checkpoint(step)
            call scr_should_exit(stop_now, ierror)
        end if
        if (rank == kill_rank .and. step == kill_step) call abort()
    end do
    if (step == steps) call write_answer()
    call scr_finalize(ierror)
    call MPI_Finalize(ierror)

contains

    integer function number(at, default)
        integer, intent(in) :: at, default
        character(len=32) :: text
        call get_command_argument(at, text)
        number = default
        if (text /= '') read (text, *) number
    end function

    ! First row of rank r of n: rows are dealt out as evenly as they go.
    integer function first_row(r, n)
        integer, intent(in) :: r, n
        first_row = int(int(points, 8) * r / n)
    end function

    subroutine new_plate()
        integer :: row, column
        first = first_row(rank, ranks)
        rows = first_row(rank + 1, ranks) - first
        allocate (now(0:points - 1, 0:rows + 1), next(0:points - 1, 0:rows + 1))
        now = 0
        next = 0
        do row = 1, rows
            do column = 0, points - 1
                now(column, row) = initial(first + row - 1, column)
            end do
        end do
    end subroutine

    ! Cold everywhere, apart from two hot spots and one edge.
    double precision function initial(row, column)
        integer, intent(in) :: row, column
        initial = 0
        if (row == 0) then
            initial = 100
        else if (abs(row - points / 3) < points / 10 .and. abs(column - points / 4) < points / 10) then
            initial = 80
        else if (abs(row - 2 * points / 3) < points / 12 .and. abs(column - 3 * points / 5) < points / 8) then
            initial = 60 + 0.25d0 * mod(column, 7)
        end if
    end function

    ! Every inner point moves towards the mean of its four neighbours; the edges stay as they are.
    subroutine compute()
        integer :: row, j
        call swap_borders()
        do row = 1, rows
            next(:, row) = now(:, row)
            if (first + row - 1 == 0 .or. first + row == points) cycle
            do j = 1, points - 2
                next(j, row) = now(j, row) + 0.2d0 * (now(j, row - 1) + now(j, row + 1) + now(j - 1, row) &
                                                      + now(j + 1, row) - 4.0d0 * now(j, row))
            end do
        end do
        call swap_fields()
    end subroutine

    subroutine swap_borders()
        integer :: up, down
        up = merge(rank - 1, MPI_PROC_NULL, rank > 0)
        down = merge(rank + 1, MPI_PROC_NULL, rank + 1 < ranks)
        call MPI_Sendrecv(now(0, 1), points, MPI_DOUBLE_PRECISION, up, 1, now(0, rows + 1), points, &
                          MPI_DOUBLE_PRECISION, down, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
        call MPI_Sendrecv(now(0, rows), points, MPI_DOUBLE_PRECISION, down, 2, now(0, 0), points, &
                          MPI_DOUBLE_PRECISION, up, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    end subroutine

    subroutine swap_fields()
        double precision, allocatable :: old(:, :)
        call move_alloc(now, old)
        call move_alloc(next, now)
        call move_alloc(old, next)
    end subroutine

    ! Saves this rank's rows.
    subroutine checkpoint(at)
        integer, intent(in) :: at
        character(len=64) :: name
        character(len=SCR_MAX_FILENAME) :: path
        integer :: unit, status, valid
        write (name, '("heat.", i6.6)') at
        call scr_start_output(name, SCR_FLAG_CHECKPOINT, ierror)
        if (ierror /= SCR_SUCCESS) return  ! the run goes on without this checkpoint
        valid = 0
        call scr_route_file(file_of(name, rank), path, ierror)
        if (ierror == SCR_SUCCESS) then
            open (newunit=unit, file=trim(path), access='stream', form='unformatted', status='replace', iostat=status)
            if (status == 0) write (unit, iostat=status) at, points, first, rows, now(:, 1:rows)
            if (status == 0) close (unit, iostat=status)
            if (status == 0) valid = 1
        end if
        call scr_complete_output(valid, ierror)
        if (rank == 0 .and. ierror == SCR_SUCCESS) print '("heat2d: checkpoint ", a, " is complete")', trim(name)
    end subroutine

    ! Loads the newest checkpoint that all ranks can read. Gives its step, or 0 if there is none.
    integer function restart()
        character(len=SCR_MAX_FILENAME) :: name
        integer :: have, valid
        restart = 0
        do
            call scr_have_restart(have, name, ierror)
            ! There may be checkpoints: never begin anew and write over them.
            if (ierror /= SCR_SUCCESS) call MPI_Abort(MPI_COMM_WORLD, 2, ierror)
            if (have == 0) return
            call scr_start_restart(name, ierror)
            if (ierror /= SCR_SUCCESS) call MPI_Abort(MPI_COMM_WORLD, 2, ierror)
            restart = load(name)
            valid = merge(1, 0, restart > 0)
            call scr_complete_restart(valid, ierror)
            if (ierror == SCR_SUCCESS) then
                call swap_fields()  ! only now: all ranks have read the same checkpoint
                if (rank == 0) print '("heat2d: restarted from ", a, " at step ", i0)', trim(name), restart
                return
            end if
            restart = 0
        end do
    end function

    ! Loads this rank's rows into the spare field, from the files of those ranks that had them: another number may have
    ! written the checkpoint. Gives the step they belong to, or -1.
    integer function load(name)
        character(len=*), intent(in) :: name
        integer :: writers, r, from, to
        load = -1
        call scr_restart_ranks(writers, ierror)
        if (ierror /= SCR_SUCCESS) return
        do r = 0, writers - 1
            from = max(first, first_row(r, writers))
            to = min(first + rows, first_row(r + 1, writers)) - 1
            if (from > to) cycle
            load = load_rows(file_of(name, r), first_row(r, writers), from, to)
            if (load < 0) return
        end do
    end function

    ! Loads the rows from .. to of a file that begins with row begin; gives the step, or -1.
    integer function load_rows(file, begin, from, to)
        character(len=*), intent(in) :: file
        integer, intent(in) :: begin, from, to
        character(len=SCR_MAX_FILENAME) :: path
        integer :: unit, status, header(4)
        load_rows = -1
        call scr_route_file(file, path, ierror)
        if (ierror /= SCR_SUCCESS) return
        open (newunit=unit, file=trim(path), access='stream', form='unformatted', status='old', iostat=status)
        if (status /= 0) return
        read (unit, iostat=status) header
        if (status == 0 .and. all(header(2:3) == [points, begin])) then
            read (unit, pos=17_8 + int(from - begin, 8) * points * 8, iostat=status) &
                next(:, from - first + 1:to - first + 1)
            if (status == 0) load_rows = header(1)
        end if
        close (unit)
    end function

    function file_of(name, r) result(file)
        character(len=*), intent(in) :: name
        integer, intent(in) :: r
        character(len=SCR_MAX_FILENAME) :: file
        write (file, '(a, "/rank_", i0, ".heat")') trim(name), r
    end function

    ! Gathers the rows at rank 0 in their order, and writes them.
    subroutine write_answer()
        double precision :: row(0:points - 1)
        integer :: from, i, unit
        if (rank > 0) then
            do i = 1, rows
                call MPI_Send(now(0, i), points, MPI_DOUBLE_PRECISION, 0, 3, MPI_COMM_WORLD, ierror)
            end do
            return
        end if
        open (newunit=unit, file=trim(answer_file), access='stream', form='unformatted', status='replace')
        write (unit) now(:, 1:rows)
        do from = 1, ranks - 1
            do i = first_row(from, ranks), first_row(from + 1, ranks) - 1
                call MPI_Recv(row, points, MPI_DOUBLE_PRECISION, from, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
                write (unit) row
            end do
        end do
        close (unit)
        print '("heat2d: the answer is in ", a)', trim(answer_file)
    end subroutine
end program
