C     heat2d in FORTRAN 77 style: the example heat2d.c, with scrf.h.
C
C     Each rank owns a block of rows of the plate and swaps its border
C     rows with the two neighbours in every step. All of SCR is in
C     CHKPNT, RESTRT and the main program.
C
C       mpif77 heat2d.f -o heat2d_f77 -I$SCR_DIR/include
C              -L$SCR_DIR/lib -lscrf
C       mpirun -n 4 ./heat2d_f77 SIZE STEPS EVERY RESULT
C              [KILL_RANK KILL_STEP]
      PROGRAM HEAT2D
      INCLUDE 'mpif.h'
      INCLUDE 'scrf.h'
      INTEGER MAXPTS
      PARAMETER (MAXPTS=1024)
      INTEGER RANK, RANKS, POINTS, FIRST, ROWS
      COMMON /PLATE/ RANK, RANKS, POINTS, FIRST, ROWS
      DOUBLE PRECISION U(MAXPTS*(MAXPTS+2)), V(MAXPTS*(MAXPTS+2))
      INTEGER STEPS, EVERY, KRANK, KSTEP, STEP, ISTOP, NEED, IERR
      INTEGER NUMBER, RESTRT
      CHARACTER*(SCR_MAX_FILENAME) RESULT
      CHARACTER*64 SETTNG, VAL

      CALL MPI_INIT(IERR)
      CALL MPI_COMM_RANK(MPI_COMM_WORLD, RANK, IERR)
      CALL MPI_COMM_SIZE(MPI_COMM_WORLD, RANKS, IERR)
      POINTS = MIN(NUMBER(1, 512), MAXPTS)
      STEPS = NUMBER(2, 500)
      EVERY = NUMBER(3, 50)
      CALL GETARG(4, RESULT)
      KRANK = NUMBER(5, -1)
      KSTEP = NUMBER(6, 0)
      FIRST = POINTS * RANK / RANKS
      ROWS = POINTS * (RANK + 1) / RANKS - FIRST
      CALL BEGIN(U, POINTS)
      CALL BEGIN(V, POINTS)

      WRITE (SETTNG, '(A, I10)') 'SCR_CHECKPOINT_INTERVAL=', EVERY
      CALL SCR_CONFIG(SETTNG, VAL, IERR)
      CALL SCR_INIT(IERR)
      IF (IERR .NE. SCR_SUCCESS) CALL MPI_ABORT(MPI_COMM_WORLD, 2, IERR)
      STEP = RESTRT(U, POINTS)
      ISTOP = 0
   10 IF (STEP .LT. STEPS .AND. ISTOP .EQ. 0) THEN
        CALL COMPUT(U, V, POINTS)
        STEP = STEP + 1
        CALL SCR_NEED_CHECKPOINT(NEED, IERR)
        IF (NEED .EQ. 1) THEN
          CALL CHKPNT(U, POINTS, STEP)
          CALL SCR_SHOULD_EXIT(ISTOP, IERR)
        END IF
        IF (RANK .EQ. KRANK .AND. STEP .EQ. KSTEP) CALL ABORT()
        GOTO 10
      END IF
      IF (STEP .EQ. STEPS) CALL ANSWER(U, POINTS, RESULT)
      CALL SCR_FINALIZE(IERR)
      CALL MPI_FINALIZE(IERR)
      END

      INTEGER FUNCTION NUMBER(AT, DFAULT)
      INTEGER AT, DFAULT
      CHARACTER*32 TEXT
      CALL GETARG(AT, TEXT)
      NUMBER = DFAULT
      IF (TEXT .NE. ' ') READ (TEXT, *) NUMBER
      END

C     Cold everywhere, apart from two hot spots and one edge.
      SUBROUTINE BEGIN(U, N)
      INTEGER N, RANK, RANKS, POINTS, FIRST, ROWS, I, J, K
      COMMON /PLATE/ RANK, RANKS, POINTS, FIRST, ROWS
      DOUBLE PRECISION U(0:N-1, 0:*)
      DO 20 K = 0, ROWS + 1
        I = FIRST + K - 1
        DO 10 J = 0, N - 1
          U(J, K) = 0D0
          IF (K .EQ. 0 .OR. K .GT. ROWS) GOTO 10
          IF (I .EQ. 0) THEN
            U(J, K) = 100D0
          ELSE IF (ABS(I - N/3) .LT. N/10 .AND.
     &             ABS(J - N/4) .LT. N/10) THEN
            U(J, K) = 80D0
          ELSE IF (ABS(I - 2*N/3) .LT. N/12 .AND.
     &             ABS(J - 3*N/5) .LT. N/8) THEN
            U(J, K) = 60D0 + 0.25D0 * MOD(J, 7)
          END IF
   10   CONTINUE
   20 CONTINUE
      END

C     Every inner point moves towards the mean of its neighbours.
      SUBROUTINE COMPUT(U, V, N)
      INCLUDE 'mpif.h'
      INTEGER N, RANK, RANKS, POINTS, FIRST, ROWS, J, K, IERR
      INTEGER UP, DOWN
      COMMON /PLATE/ RANK, RANKS, POINTS, FIRST, ROWS
      DOUBLE PRECISION U(0:N-1, 0:*), V(0:N-1, 0:*)
      UP = MPI_PROC_NULL
      IF (RANK .GT. 0) UP = RANK - 1
      DOWN = MPI_PROC_NULL
      IF (RANK + 1 .LT. RANKS) DOWN = RANK + 1
      CALL MPI_SENDRECV(U(0, 1), N, MPI_DOUBLE_PRECISION, UP, 1,
     &  U(0, ROWS+1), N, MPI_DOUBLE_PRECISION, DOWN, 1,
     &  MPI_COMM_WORLD, MPI_STATUS_IGNORE, IERR)
      CALL MPI_SENDRECV(U(0, ROWS), N, MPI_DOUBLE_PRECISION, DOWN, 2,
     &  U(0, 0), N, MPI_DOUBLE_PRECISION, UP, 2,
     &  MPI_COMM_WORLD, MPI_STATUS_IGNORE, IERR)
      DO 20 K = 1, ROWS
        DO 10 J = 0, N - 1
          V(J, K) = U(J, K)
          IF (J .EQ. 0 .OR. J .EQ. N - 1) GOTO 10
          IF (FIRST + K .EQ. 1 .OR. FIRST + K .EQ. POINTS) GOTO 10
          V(J, K) = U(J, K) + 0.2D0 * (U(J, K-1) + U(J, K+1)
     &      + U(J-1, K) + U(J+1, K) - 4.0D0 * U(J, K))
   10   CONTINUE
   20 CONTINUE
      DO 40 K = 1, ROWS
        DO 30 J = 0, N - 1
          U(J, K) = V(J, K)
   30   CONTINUE
   40 CONTINUE
      END

C     The file of this rank in the checkpoint NAME.
      SUBROUTINE FILEOF(NAME, FILE)
      CHARACTER*(*) NAME, FILE
      INTEGER RANK, RANKS, POINTS, FIRST, ROWS, L
      COMMON /PLATE/ RANK, RANKS, POINTS, FIRST, ROWS
      L = INDEX(NAME, ' ') - 1
      IF (L .LT. 0) L = LEN(NAME)
      WRITE (FILE, '(A,A,I5.5,A)') NAME(1:L), '/rank_', RANK, '.heat'
      END

      SUBROUTINE CHKPNT(U, N, STEP)
      INCLUDE 'scrf.h'
      INTEGER N, STEP, RANK, RANKS, POINTS, FIRST, ROWS
      INTEGER IERR, IOS, VALID, J, K
      COMMON /PLATE/ RANK, RANKS, POINTS, FIRST, ROWS
      DOUBLE PRECISION U(0:N-1, 0:*)
      CHARACTER*64 NAME
      CHARACTER*(SCR_MAX_FILENAME) FILE, PATH
      WRITE (NAME, '(A,I6.6)') 'heat.', STEP
      CALL SCR_START_OUTPUT(NAME, SCR_FLAG_CHECKPOINT, IERR)
      IF (IERR .NE. SCR_SUCCESS) RETURN
      VALID = 0
      CALL FILEOF(NAME, FILE)
      CALL SCR_ROUTE_FILE(FILE, PATH, IERR)
      IF (IERR .EQ. SCR_SUCCESS) THEN
        OPEN (11, FILE=PATH, FORM='UNFORMATTED', STATUS='UNKNOWN',
     &        IOSTAT=IOS)
        IF (IOS .EQ. 0) WRITE (11, IOSTAT=IOS) STEP, N, FIRST, ROWS
        IF (IOS .EQ. 0) WRITE (11, IOSTAT=IOS)
     &    ((U(J, K), J = 0, N - 1), K = 1, ROWS)
        IF (IOS .EQ. 0) CLOSE (11, IOSTAT=IOS)
        IF (IOS .EQ. 0) VALID = 1
      END IF
      CALL SCR_COMPLETE_OUTPUT(VALID, IERR)
      IF (RANK .EQ. 0 .AND. IERR .EQ. SCR_SUCCESS)
     &  PRINT '(A,I6.6,A)', 'heat2d: checkpoint heat.', STEP,
     &        ' is complete'
      END

C     Loads the newest checkpoint that all ranks can read. Gives its
C     step, or 0 if there is none.
      INTEGER FUNCTION RESTRT(U, N)
      INCLUDE 'mpif.h'
      INCLUDE 'scrf.h'
      INTEGER N, RANK, RANKS, POINTS, FIRST, ROWS
      INTEGER HAVE, IERR, IOS, VALID, STEP, N2, FIRST2, ROWS2, J, K
      COMMON /PLATE/ RANK, RANKS, POINTS, FIRST, ROWS
      DOUBLE PRECISION U(0:N-1, 0:*)
      CHARACTER*(SCR_MAX_FILENAME) NAME, FILE, PATH
      RESTRT = 0
   10 CALL SCR_HAVE_RESTART(HAVE, NAME, IERR)
C     There may be checkpoints: never begin anew and write over them.
      IF (IERR .NE. SCR_SUCCESS) CALL MPI_ABORT(MPI_COMM_WORLD, 2, IERR)
      IF (HAVE .EQ. 0) THEN
        CALL BEGIN(U, N)
        RETURN
      END IF
      CALL SCR_START_RESTART(NAME, IERR)
      IF (IERR .NE. SCR_SUCCESS) CALL MPI_ABORT(MPI_COMM_WORLD, 2, IERR)
      VALID = 0
      CALL FILEOF(NAME, FILE)
      CALL SCR_ROUTE_FILE(FILE, PATH, IERR)
      IF (IERR .EQ. SCR_SUCCESS) THEN
        OPEN (11, FILE=PATH, FORM='UNFORMATTED', STATUS='OLD',
     &        IOSTAT=IOS)
        IF (IOS .EQ. 0) READ (11, IOSTAT=IOS) STEP, N2, FIRST2, ROWS2
        IF (IOS .EQ. 0 .AND. N2 .EQ. N .AND. FIRST2 .EQ. FIRST .AND.
     &      ROWS2 .EQ. ROWS) THEN
          READ (11, IOSTAT=IOS)
     &      ((U(J, K), J = 0, N - 1), K = 1, ROWS)
          IF (IOS .EQ. 0) VALID = 1
        END IF
        CLOSE (11)
      END IF
      CALL SCR_COMPLETE_RESTART(VALID, IERR)
      IF (IERR .NE. SCR_SUCCESS) GOTO 10
      RESTRT = STEP
      IF (RANK .EQ. 0) PRINT '(A,A,A,I6)', 'heat2d: restarted from ',
     &  NAME(1:11), ' at step ', STEP
      END

C     Gathers the rows at rank 0 in their order, and writes them.
      SUBROUTINE ANSWER(U, N, RESULT)
      INCLUDE 'mpif.h'
      INTEGER N, RANK, RANKS, POINTS, FIRST, ROWS, IERR, FROM, I, J, K
      COMMON /PLATE/ RANK, RANKS, POINTS, FIRST, ROWS
      DOUBLE PRECISION U(0:N-1, 0:*)
      CHARACTER*(*) RESULT
      IF (RANK .GT. 0) THEN
        DO 10 K = 1, ROWS
          CALL MPI_SEND(U(0, K), N, MPI_DOUBLE_PRECISION, 0, 3,
     &                  MPI_COMM_WORLD, IERR)
   10   CONTINUE
        RETURN
      END IF
      OPEN (12, FILE=RESULT, ACCESS='STREAM', FORM='UNFORMATTED',
     &      STATUS='REPLACE')
      WRITE (12) ((U(J, K), J = 0, N - 1), K = 1, ROWS)
      DO 30 FROM = 1, RANKS - 1
        DO 20 I = N*FROM/RANKS, N*(FROM+1)/RANKS - 1
          CALL MPI_RECV(U(0, 1), N, MPI_DOUBLE_PRECISION, FROM, 3,
     &                  MPI_COMM_WORLD, MPI_STATUS_IGNORE, IERR)
          WRITE (12) (U(J, 1), J = 0, N - 1)
   20   CONTINUE
   30 CONTINUE
      CLOSE (12)
      PRINT '(A,A)', 'heat2d: the answer is in ',
     &  RESULT(1:INDEX(RESULT, ' ') - 1)
      END
