! misuse: calls of the Fortran interface that must fail, and what they leave behind. Prints a line for each.
program misuse
    use mpi
    use scr
    implicit none

    character(len=SCR_MAX_FILENAME) :: path
    character(len=3) :: short
    character(len=16) :: value
    integer :: ierror, flag, unit, comm, number

    call MPI_Init(ierror)
    call scr_config('SCR_FLUSHH=1', value, ierror)
    if (ierror == SCR_ERR_CONFIG) print '(a)', 'a wrong setting is refused'
    call scr_config('SCR_CACHE_SIZE=2', value, ierror)
    if (ierror == SCR_SUCCESS) print '(a)', 'a right setting is taken'
    call scr_config('SCR_CACHE_SIZE', value, ierror)
    if (ierror == SCR_SUCCESS .and. value == '2') print '(a)', 'and given back'
    call scr_config('SCR_LOG_DB_HOST', value, ierror)
    if (ierror == SCR_FAILURE .and. value == '') print '(a)', 'a missing value is told'

    call scr_config('SCR_RESTART_OTHER_RANKS=1', value, ierror)

    ! Without a running SCR nobody knows what a file would replace.
    call scr_route_file('some/name', path, ierror)
    if (ierror == SCR_ERR_STATE .and. path == ' ') print '(a)', 'without SCR there is no path'

    call scr_init(ierror)
    call scr_start_output(repeat('x', 2000), SCR_FLAG_CHECKPOINT, ierror)
    if (ierror == SCR_ERR_ARGUMENT) print '(a)', 'a name that is too long is refused'

    ! A file that has no path keeps the dataset from being complete.
    call scr_start_output('cut', SCR_FLAG_CHECKPOINT, ierror)
    call scr_route_file(repeat('x', 2000), path, ierror)
    if (ierror == SCR_ERR_ARGUMENT .and. path == '') print '(a)', 'a path that is too long is refused'
    call scr_complete_output(1, ierror)
    if (ierror /= SCR_SUCCESS) print '(a)', 'and the dataset is not complete'

    call scr_start_output('step.1', SCR_FLAG_CHECKPOINT, ierror)
    call scr_route_file('step.1/file', path, ierror)
    open (newunit=unit, file=trim(path))
    write (unit, '(a)') 'content'
    close (unit)
    call scr_complete_output(1, ierror)
    if (ierror == SCR_SUCCESS) print '(a)', 'step.1 is complete'

    ! A variable that is too short leaves no phase open.
    flag = 1
    call scr_have_restart(flag, short, ierror)
    if (ierror == SCR_ERR_ARGUMENT .and. flag == 0) print '(a)', 'a short variable has no answer'
    call scr_last_error(path)
    if (index(path, 'SCR_Have_restart: the answer has 6 characters') == 1) print '(a)', 'for a reason that is kept'
    call scr_start_restart(short, ierror)
    if (ierror == SCR_ERR_ARGUMENT) print '(a)', 'and begins no restart'
    call scr_start_restart(value, ierror)
    if (ierror == SCR_SUCCESS .and. value == 'step.1') print '(a)', 'a long one does'
    call scr_restart_ranks(number, ierror)
    if (ierror == SCR_SUCCESS .and. number == 1) print '(a)', 'one rank wrote it'
    call scr_restart_files(0, number, ierror)
    if (ierror == SCR_SUCCESS .and. number == 1) print '(a)', 'and one file'
    call scr_restart_file(0, 1, path, ierror)
    if (ierror == SCR_SUCCESS .and. path == 'step.1/file') print '(a)', 'which has its name'
    call scr_restart_file(0, 0, path, ierror)
    if (ierror == SCR_ERR_ARGUMENT .and. path == '') print '(a)', 'there is no file 0'
    call scr_restart_files(1, number, ierror)
    if (ierror == SCR_ERR_ARGUMENT) print '(a)', 'nor a second rank'
    call scr_restart_file(0, 1, short, ierror)
    if (ierror == SCR_ERR_ARGUMENT) print '(a)', 'nor room for a name in three letters'
    call scr_complete_restart(1, ierror)
    if (ierror == SCR_SUCCESS) print '(a)', 'the restart is complete'
    call scr_finalize(ierror)

    ! Another session, of a communicator that is freed at once.
    call scr_config('SCR_CACHE_SIZE', value, ierror)
    if (ierror == SCR_FAILURE) print '(a)', 'a setting ends with its session'
    call scr_init_comm(MPI_COMM_NULL, ierror)
    if (ierror == SCR_ERR_ARGUMENT) print '(a)', 'a communicator without ranks is refused'
    call MPI_Comm_dup(MPI_COMM_SELF, comm, ierror)
    call scr_init_comm(comm, ierror)
    if (ierror == SCR_SUCCESS) print '(a)', 'a session of a communicator begins'
    call MPI_Comm_free(comm, ierror)
    call scr_start_restart(value, ierror)
    if (ierror == SCR_SUCCESS .and. value == 'step.1') print '(a)', 'and restarts'
    call scr_complete_restart(1, ierror)
    call scr_start_output('dropped', SCR_FLAG_CHECKPOINT, ierror)
    call scr_recover(MPI_COMM_WORLD, ierror)
    if (ierror == SCR_SUCCESS) print '(a)', 'another one takes its place'
    call scr_start_restart(value, ierror)
    if (ierror == SCR_SUCCESS .and. value == 'step.1') print '(a)', 'and restarts as well'
    call scr_complete_restart(1, ierror)
    call scr_finalize(ierror)
    if (ierror == SCR_SUCCESS) print '(a)', 'and ends'
    call MPI_Finalize(ierror)
end program
