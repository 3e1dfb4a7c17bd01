# Rebuilds the program and its unit tests with branch counters in some modules (scripts/dev/coverage). Only these
# modules are compiled again, without optimisation, so that each branch is one in the source. The linker takes
# these objects in preference to the modules' libraries. Built only on request.
#
# Sources are compiled in the same groups as in src/attn: each run of the program updates one file of counts
# per object.
set(counted_modules base io job run)
add_library(attn_counted OBJECT EXCLUDE_FROM_ALL)
foreach(module ${counted_modules})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/attn/${module}/*.cpp)
  target_sources(attn_counted PRIVATE ${sources})
  attn_unity(attn_counted ${module} ${sources})
endforeach()
foreach(module ${counted_modules})
  target_link_libraries(attn_counted PRIVATE $<TARGET_PROPERTY:attn_${module},LINK_LIBRARIES>)
  target_include_directories(attn_counted SYSTEM PRIVATE
                             $<TARGET_PROPERTY:attn_${module},INCLUDE_DIRECTORIES>)
  target_compile_definitions(attn_counted PRIVATE
                             $<TARGET_PROPERTY:attn_${module},COMPILE_DEFINITIONS>)
endforeach()
target_compile_options(attn_counted PRIVATE --coverage -fprofile-update=atomic -O0)

set(counted_end ${CMAKE_CURRENT_SOURCE_DIR}/counted/end.cpp)
add_executable(attn-counted EXCLUDE_FROM_ALL $<TARGET_OBJECTS:attn> ${counted_end}
               $<TARGET_OBJECTS:attn_counted>)
target_link_libraries(attn-counted PRIVATE attn_cli)

add_executable(attn_tests-counted EXCLUDE_FROM_ALL $<TARGET_OBJECTS:attn_tests> ${counted_end}
               $<TARGET_OBJECTS:attn_counted>)
target_link_libraries(attn_tests-counted PRIVATE attn_ranks attn_api Catch2::Catch2WithMain)

foreach(counted attn-counted attn_tests-counted)
  target_link_libraries(${counted} PRIVATE ${CMAKE_DL_LIBS})
  target_link_options(${counted} PRIVATE --coverage -Wl,--wrap=raise,--wrap=_exit,--wrap=_Exit)
endforeach()
