! scrf.h: the constants of scr for Fortran, in fixed and in free form.
! The module scr has these and the interfaces of the subroutines.
      INTEGER SCR_SUCCESS, SCR_FAILURE, SCR_ERR_STATE, SCR_ERR_ARGUMENT
      INTEGER SCR_ERR_CONFIG, SCR_ERR_IO, SCR_ERR_MPI, SCR_ERR_INTERNAL
      PARAMETER (SCR_SUCCESS=0, SCR_FAILURE=1, SCR_ERR_STATE=2)
      PARAMETER (SCR_ERR_ARGUMENT=3, SCR_ERR_CONFIG=4, SCR_ERR_IO=5)
      PARAMETER (SCR_ERR_MPI=6, SCR_ERR_INTERNAL=7)
! The length of every variable that receives a name.
      INTEGER SCR_MAX_FILENAME
      PARAMETER (SCR_MAX_FILENAME=1024)
! Properties of a dataset, to be added up for SCR_START_OUTPUT.
      INTEGER SCR_FLAG_NONE, SCR_FLAG_CHECKPOINT, SCR_FLAG_OUTPUT
      PARAMETER (SCR_FLAG_NONE=0, SCR_FLAG_CHECKPOINT=1)
      PARAMETER (SCR_FLAG_OUTPUT=2)
