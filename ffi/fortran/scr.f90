! scr: the Fortran interface of the scr checkpoint/restart runtime, with explicit interfaces.
!
! A module file belongs to one compiler: compile this source with the compiler of the application, or use the scr.mod
! that was installed where that was gfortran. Link with -lscrf.
module scr
    implicit none
    public

    ! What the subroutines return in ierror.
    integer, parameter :: SCR_SUCCESS = 0
    integer, parameter :: SCR_FAILURE = 1
    integer, parameter :: SCR_ERR_STATE = 2
    integer, parameter :: SCR_ERR_ARGUMENT = 3
    integer, parameter :: SCR_ERR_CONFIG = 4
    integer, parameter :: SCR_ERR_IO = 5
    integer, parameter :: SCR_ERR_MPI = 6
    integer, parameter :: SCR_ERR_INTERNAL = 7

    ! The length of every variable that receives a name.
    integer, parameter :: SCR_MAX_FILENAME = 1024

    ! Properties of a dataset, to be added up for scr_start_output.
    integer, parameter :: SCR_FLAG_NONE = 0
    integer, parameter :: SCR_FLAG_CHECKPOINT = 1
    integer, parameter :: SCR_FLAG_OUTPUT = 2

    interface
        ! Starts the library, after MPI_Init. Collective.
        subroutine scr_init(ierror)
            integer, intent(out) :: ierror
        end subroutine

        ! Starts it for the processes of a communicator, a handle of the module mpi or comm%MPI_VAL of mpi_f08. Collective.
        subroutine scr_init_comm(comm, ierror)
            integer, intent(in) :: comm
            integer, intent(out) :: ierror
        end subroutine

        ! Goes on after processes have died, with a communicator of those that go on. New ones call scr_init_comm. Collective.
        subroutine scr_recover(newcomm, ierror)
            integer, intent(in) :: newcomm
            integer, intent(out) :: ierror
        end subroutine

        ! Shuts it down, before MPI_Finalize. Collective.
        subroutine scr_finalize(ierror)
            integer, intent(out) :: ierror
        end subroutine

        ! 'NAME=value' sets and 'NAME=' unsets a parameter before scr_init; 'NAME' asks for its value, which val receives.
        subroutine scr_config(config, val, ierror)
            character(len=*), intent(in) :: config
            character(len=*), intent(out) :: val
            integer, intent(out) :: ierror
        end subroutine

        ! Gives in file the path at which to write or read name. Local.
        subroutine scr_route_file(name, file, ierror)
            character(len=*), intent(in) :: name
            character(len=*), intent(out) :: file
            integer, intent(out) :: ierror
        end subroutine

        ! Sets flag to 1 if it is time for a checkpoint, else to 0. Collective.
        subroutine scr_need_checkpoint(flag, ierror)
            integer, intent(out) :: flag, ierror
        end subroutine

        ! Begins a dataset. Collective.
        subroutine scr_start_output(name, flags, ierror)
            character(len=*), intent(in) :: name
            integer, intent(in) :: flags
            integer, intent(out) :: ierror
        end subroutine

        ! Ends it; valid is 1 if this process wrote all its files. Collective.
        subroutine scr_complete_output(valid, ierror)
            integer, intent(in) :: valid
            integer, intent(out) :: ierror
        end subroutine

        ! The same for a checkpoint without a name, as earlier versions had it. Collective.
        subroutine scr_start_checkpoint(ierror)
            integer, intent(out) :: ierror
        end subroutine

        subroutine scr_complete_checkpoint(valid, ierror)
            integer, intent(in) :: valid
            integer, intent(out) :: ierror
        end subroutine

        ! Sets flag to 1 if there is a checkpoint to restart from, and gives its name. Collective.
        subroutine scr_have_restart(flag, name, ierror)
            integer, intent(out) :: flag
            character(len=*), intent(out) :: name
            integer, intent(out) :: ierror
        end subroutine

        ! Begins to read it; gives its name. Collective.
        subroutine scr_start_restart(name, ierror)
            character(len=*), intent(out) :: name
            integer, intent(out) :: ierror
        end subroutine

        ! How many processes wrote the checkpoint. With SCR_RESTART_OTHER_RANKS=1 it may be another number. Local.
        subroutine scr_restart_ranks(n, ierror)
            integer, intent(out) :: n, ierror
        end subroutine

        ! How many files one of them wrote; ranks count from 0. Local.
        subroutine scr_restart_files(rank, count, ierror)
            integer, intent(in) :: rank
            integer, intent(out) :: count, ierror
        end subroutine

        ! Gives the name of one of them, for scr_route_file; files count from 1. Local.
        subroutine scr_restart_file(rank, i, name, ierror)
            integer, intent(in) :: rank, i
            character(len=*), intent(out) :: name
            integer, intent(out) :: ierror
        end subroutine

        ! Ends it. If valid is 0 anywhere it fails everywhere, and the next older checkpoint is loaded. Collective.
        subroutine scr_complete_restart(valid, ierror)
            integer, intent(in) :: valid
            integer, intent(out) :: ierror
        end subroutine

        ! Says that the application has restarted from this dataset by itself. Collective.
        subroutine scr_current(name, ierror)
            character(len=*), intent(in) :: name
            integer, intent(out) :: ierror
        end subroutine

        ! Forgets the entry of a dataset in the index; its files stay. Collective.
        subroutine scr_drop(name, ierror)
            character(len=*), intent(in) :: name
            integer, intent(out) :: ierror
        end subroutine

        ! Deletes the files of a dataset, from the prefix directory and from the cache. Collective.
        subroutine scr_delete(name, ierror)
            character(len=*), intent(in) :: name
            integer, intent(out) :: ierror
        end subroutine

        ! Gives the version of the library. Local.
        subroutine scr_get_version(version, ierror)
            character(len=*), intent(out) :: version
            integer, intent(out) :: ierror
        end subroutine

        ! Sets flag to 1 if the application should stop now, else to 0. Collective.
        subroutine scr_should_exit(flag, ierror)
            integer, intent(out) :: flag, ierror
        end subroutine

        ! Gives the reason why the last call that failed has failed, cut where text is too short. Local.
        subroutine scr_last_error(text)
            character(len=*), intent(out) :: text
        end subroutine
    end interface
end module scr
