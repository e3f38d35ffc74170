# find_package(scr), or find_package(SCR): the targets scr::scr (C and C++) and scr::scrf (Fortran, and C besides), with the MPI
# that they were built for; and scr::scr-static and scr::scrf-static, if the archives are there.
#
# Found from where this file lies, so that the tree can be moved.
get_filename_component(_scr_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
foreach(_scr_file @LIB@/libscr.so @LIB@/libscrf.so include/scr.h)
  if(NOT EXISTS "${_scr_prefix}/${_scr_file}")
    set(${CMAKE_FIND_PACKAGE_NAME}_FOUND FALSE)
    set(${CMAKE_FIND_PACKAGE_NAME}_NOT_FOUND_MESSAGE "${_scr_prefix}/${_scr_file} is missing")
    return()
  endif()
endforeach()

# Where several MPIs are installed side by side, as Debian does it, the names of their compilers end with their own.
if(NOT MPI_EXECUTABLE_SUFFIX)
  find_program(SCR_MPICC mpicc.@MPI@)
  mark_as_advanced(SCR_MPICC)
  if(SCR_MPICC)
    set(MPI_EXECUTABLE_SUFFIX .@MPI@)
  endif()
endif()
include(CMakeFindDependencyMacro)
find_dependency(MPI)

foreach(_scr_kind SHARED STATIC)
  set(_scr_suffix "")
  set(_scr_ending so)
  if(_scr_kind STREQUAL STATIC)
    set(_scr_suffix -static)
    set(_scr_ending a)
  endif()
  foreach(_scr_name scr scrf)
    set(_scr_file "${_scr_prefix}/@LIB@/lib${_scr_name}.${_scr_ending}")
    set(_scr_target scr::${_scr_name}${_scr_suffix})
    if(NOT EXISTS "${_scr_file}")
      break()
    endif()
    if(NOT TARGET ${_scr_target})
      add_library(${_scr_target} ${_scr_kind} IMPORTED)
    endif()
    # The options of a Fortran compiler are none of the others.
    set(_scr_languages C CXX)
    set(_scr_links "")
    if(_scr_name STREQUAL scrf)
      set(_scr_languages Fortran)
      set(_scr_links scr::scr${_scr_suffix})
    elseif(_scr_kind STREQUAL STATIC)
      set(_scr_links gcc_s util rt pthread m dl)
      # A program that holds libscr.a finds the tree as it would find libscr.so.
      set_property(TARGET ${_scr_target} PROPERTY INTERFACE_LINK_OPTIONS "-Wl,-rpath,${_scr_prefix}/@LIB@")
    endif()
    foreach(_scr_language IN LISTS _scr_languages)
      if(TARGET MPI::MPI_${_scr_language})
        list(APPEND _scr_links MPI::MPI_${_scr_language})
      endif()
    endforeach()
    set_target_properties(${_scr_target} PROPERTIES
      IMPORTED_LOCATION "${_scr_file}"
      IMPORTED_SONAME "lib${_scr_name}.so"
      INTERFACE_INCLUDE_DIRECTORIES "${_scr_prefix}/include"
      INTERFACE_LINK_LIBRARIES "${_scr_links}")
  endforeach()
endforeach()
set(SCR_INCLUDE_DIRS "${_scr_prefix}/include")
set(SCR_LIBRARIES scr::scr)
foreach(_scr_name ending file kind language languages links prefix suffix target name)
  unset(_scr_${_scr_name})
endforeach()
