// Rendered from mltree/program by tests/contract_header.py. Do not edit.
// clang-format off
#define OP_PMATRICES 0
#define OP_SITES 1
#define OP_REDUCE 2
#define OP_OPTIMISE 3
#define OP_REPEAT 4
#define OP_SCAN 5
#define OP_TRIPLET 6
#define OP_WALK 7
#define OP_RELL 8
#define OP_SWEEPS 9
#define OP_TIME_SWEEPS 10
#define DO_NEWVIEW 0
#define DO_EVALUATE 1
#define DO_DERIVE 2
#define DO_EVALUATE_SITES 3
#define DO_FLOW 4
#define STEP_DIAGONAL 0
#define STEP_TRIPLET 1
#define CONTROL_ACTIVE 0
#define CONTROL_BEST 1
#define CONTROL_STEP 2
#define CONTROL_EPSILON 3
#define CONTROL_PASSES 4
#define CONTROL_MAX_PASSES 5
#define CONTROL_ACCEPTED 6
#define CONTROL_FLOOR 7
#define FN_PMATRICES 0
#define FN_NEWVIEW 1
#define FN_EVALUATE 2
#define FN_DERIVE 3
#define FN_SCAN 4
#define FN_TRIPLET 5
#define FN_OPTIMISE 6
#define FN_BARRIER 7
#define FN_RELL 8
#define FN_SWEEP 9
#define MOVE_REGRAFT 0
#define MOVE_INTERCHANGE 1
#define MOVE_BRANCH 2
#define MOVE_SCALE 3
#define MOVE_START 4
#define MOVE_MODEL 5
#define CHAIN_HEAT 0
#define CHAIN_LNL 1
#define CHAIN_SWEEP 2
#define CHAIN_REPLICA 3
#define CHAIN_SEED_LOW 4
#define CHAIN_SEED_HIGH 5
#define CHAIN_RUN 6
#define CHAIN_WINDOW 7
#define CHAIN_OUTER 8
#define CHAIN_INNER 9
#define CHAIN_POWER 10
#define CHAIN_RATE 11
#define CHAIN_PROPOSAL 12
#define CHAIN_RATIO 13
#define CHAIN_TRIED 14
#define CHAIN_TAKEN 18
#define CHAIN_ATTEMPT 22
#define CHAIN_TICKET 23
#define CHAIN_SETS 24
#define TIME_MOVE_HEIGHT 0
#define TIME_MOVE_ROOT 1
#define TIME_MOVE_TIP 2
#define TIME_MOVE_RATE 3
#define TIME_MOVE_INTERCHANGE 4
#define TIME_MOVE_REGRAFT 5
#define TIME_MOVE_REHANG 6
#define TIME_MOVE_TREE 7
#define TIME_MOVE_CLOCK 8
#define TIME_MOVE_UP_DOWN 9
#define TIME_MOVE_SPREAD 10
#define TIME_MOVE_SIZE 11
#define TIME_MOVE_GROWTH 12
#define TIME_MOVE_FRACTION 13
#define TIME_MOVE_PRECISION 14
#define TIME_MOVE_CELL 15
#define TIME_MOVE_DISTANCE 16
#define TIME_MOVE_TOUR 17
#define TIME_MOVE_STRETCH 18
#define TIME_MOVE_SAMPLING 19
#define TIME_MOVE_PACE 20
#define TIME_MOVE_CLADE 21
#define SCALAR_CLOCK 0
#define SCALAR_SPREAD 1
#define SCALAR_SIZE 2
#define SCALAR_GROWTH 3
#define SCALAR_FRACTION 4
#define SCALAR_PRECISION 5
#define SCALAR_SAMPLING 6
#define PRIOR_FIXED 0
#define PRIOR_LOG_NORMAL 1
#define PRIOR_GAMMA 2
#define PRIOR_UNIFORM 3
#define PRIOR_BETA 4
#define PRIOR_NORMAL 5
#define PRIOR_LAPLACE 6
#define CLOCK_STRICT 0
#define CLOCK_LOG_NORMAL 1
#define CLOCK_GAMMA 2
#define CLOCK_WHITE_NOISE 3
#define TREE_PRIOR_BIRTH_DEATH 0
#define TREE_PRIOR_COALESCENT 1
#define TREE_PRIOR_SKYGRID 2
#define TREE_PRIOR_SERIAL 3
#define TREE_PRIOR_SKYLINE 4
#define TIME_ROOT 0
#define TIME_CLOCK_KIND 1
#define TIME_TREE_KIND 2
#define TIME_IS_LEVEL 3
#define TIME_CALIBRATIONS 4
#define TIME_CELLS 5
#define TIME_CELL_WIDTH 6
#define TIME_WINDOWS 8
#define TIME_TRIED 30
#define TIME_TAKEN 52
#define TIME_SCALARS 74
#define CALIBRATION_KIND 0
#define CALIBRATION_A 1
#define CALIBRATION_B 2
#define CALIBRATION_OFFSET 3
#define CALIBRATION_IS_STEM 4
#define CALIBRATION_IS_GROUP 5
#define CALIBRATION_FIRST 6
#define CALIBRATION_COUNT 7
#define CALIBRATION_NODE 8
#define FAULT_NONE 0
#define FAULT_BARRIER 1
#define FAULT_NOT_FINITE 2
#define FAULT_UNKNOWN_OP 3
#define SYNC_ARRIVED 0
#define SYNC_ENTERED 1
#define SYNC_LEFT 2
#define SYNC_TAKEN 3
#define MARK_STARTED 0
#define MARK_ELAPSED 1
#define MARK_BOOKS 2
#define SCALE_BITS_DOUBLE (256)
#define SCALE_BITS_SINGLE (32)
#define CONTROL_WORDS (8)
#define HEADER_WORDS (2)
#define REDUCE_WIDTH (32)
#define NO_CELL (-1)
#define RESULT (1073741824)
#define FAR_COUNT (16777216)
#define PENDANT_LEVEL (0)
#define ROOT_LEVEL (1)
#define WARP (32)
#define TRIPLET_CELLS (10)
#define MAX_STEP_HALVINGS (12)
#define STEP_GROWTH (1.4)
#define LEAST_PROMISE (0.5)
#define GAIN_PER_PROMISE (10)
#define MOST_MIXED (10)
#define UPHILL (4)
#define DOWNHILL (16)
#define MOST_GROWTH (10)
#define LEAST_REACH (0.1)
#define MOST_DECLINE (100)
#define REACH_SWEEPS (4)
#define SATURATED (0.1)
#define RIDGE (0.001)
#define RELL_TILE (4)
#define FLOW_NEAR (0.001)
#define SERIES_OCTAVES (8)
#define MOST_TERMS (160)
#define NO_SERIES (-1)
#define CHAIN_WORDS (26)
#define RESTS (3)
#define MOST_TEAM (32)
#define SPARE_LENGTHS (4)
#define MOVE_STRIDE (16777216)
#define MOST_MEAN (10.0)
#define TEAM_WORDS (192)
#define FIRST_TIME_MOVE (16)
#define TIME_WORDS (102)
#define TIME_MOVES (22)
#define SCALAR_WORDS (4)
#define CALIBRATION_WORDS (9)
#define PRIOR_WALKS (4)
#define PACE_ROUNDS (4)
#define PACE_CLADES (8)
#define LEAST_PRECISION (0.25)
#define LEAST_SHAPE (0.02)
#define MOST_SHIFT (3.0)
#define FUNCTIONS (10)
#define SYNC_WORDS (4)
#define STAGE_WORDS 4
#define STAGE_OP 0
#define STAGE_FIRST 1
#define STAGE_COUNT 2
#define STAGE_AUX 3
#define CASE_WORDS 4
#define CASE_FIRST_PART 0
#define CASE_PARTS 1
#define CASE_MODEL 2
#define CASE_WEIGHTS 3
#define PMATRIX_WORDS 5
#define PMATRIX_P 0
#define PMATRIX_LENGTH 1
#define PMATRIX_STRIDE 2
#define PMATRIX_CASE 3
#define PMATRIX_MODEL 4
#define STREAM_WORDS 5
#define STREAM_FIRST_PART 0
#define STREAM_PARTS 1
#define STREAM_FIRST_RUN 2
#define STREAM_RUNS 3
#define STREAM_GROUP 4
#define RUN_WORDS 3
#define RUN_KIND 0
#define RUN_FIRST 1
#define RUN_COUNT 2
#define NEWVIEW_WORDS 5
#define NEWVIEW_DST 0
#define NEWVIEW_LEFT 1
#define NEWVIEW_LEFT_P 2
#define NEWVIEW_RIGHT 3
#define NEWVIEW_RIGHT_P 4
#define EDGE_WORDS 7
#define EDGE_X 0
#define EDGE_Y 1
#define EDGE_P 2
#define EDGE_CASE 3
#define EDGE_MODEL 4
#define EDGE_WEIGHTS 5
#define EDGE_CELL 6
#define FLOW_WORDS 10
#define FLOW_X 0
#define FLOW_Y 1
#define FLOW_LENGTH 2
#define FLOW_STRIDE 3
#define FLOW_CASE 4
#define FLOW_MODEL 5
#define FLOW_WEIGHTS 6
#define FLOW_CELL 7
#define FLOW_CELLS 8
#define FLOW_FIRST 9
#define REDUCTION_WORDS 5
#define REDUCTION_CELL 0
#define REDUCTION_SUM 1
#define REDUCTION_COUNT 2
#define REDUCTION_FIRST_PART 3
#define REDUCTION_PARTS 4
#define GROUP_WORDS 5
#define GROUP_KIND 0
#define GROUP_FIRST_LENGTH 1
#define GROUP_COUNT 2
#define GROUP_LNL_SUM 3
#define GROUP_FIRST_SUM 4
#define SCAN_TASK_WORDS 9
#define SCAN_TASK_PENDANT 0
#define SCAN_TASK_PENDANT_P 1
#define SCAN_TASK_ROOT 2
#define SCAN_TASK_MERGED_P 3
#define SCAN_TASK_CASE 4
#define SCAN_TASK_MODEL 5
#define SCAN_TASK_WEIGHTS 6
#define SCAN_TASK_FIRST_STEP 7
#define SCAN_TASK_STEPS 8
#define SCAN_STEP_WORDS 12
#define SCAN_STEP_LEVEL_IN 0
#define SCAN_STEP_LEFT 1
#define SCAN_STEP_LEFT_P 2
#define SCAN_STEP_LEFT_HALF_P 3
#define SCAN_STEP_LEFT_LEVEL 4
#define SCAN_STEP_LEFT_OUTPUT 5
#define SCAN_STEP_RIGHT 6
#define SCAN_STEP_RIGHT_P 7
#define SCAN_STEP_RIGHT_HALF_P 8
#define SCAN_STEP_RIGHT_LEVEL 9
#define SCAN_STEP_RIGHT_OUTPUT 10
#define SCAN_STEP_PADDING 11
#define TRIPLET_WORDS 11
#define TRIPLET_PROXIMAL 0
#define TRIPLET_DISTAL 1
#define TRIPLET_PENDANT 2
#define TRIPLET_PROXIMAL_P 3
#define TRIPLET_DISTAL_P 4
#define TRIPLET_PENDANT_P 5
#define TRIPLET_CASE 6
#define TRIPLET_MODEL 7
#define TRIPLET_WEIGHTS 8
#define TRIPLET_CELL 9
#define TRIPLET_GROUP 10
#define WALK_WORDS 9
#define WALK_TIP 0
#define WALK_P 1
#define WALK_CASE 2
#define WALK_MODEL 3
#define WALK_WEIGHTS 4
#define WALK_CELL 5
#define WALK_SLOT 6
#define WALK_FIRST_STEP 7
#define WALK_STEPS 8
#define RELL_WORDS 7
#define RELL_FIRST_ROW 0
#define RELL_ROWS 1
#define RELL_FIRST_WEIGHTS 2
#define RELL_WEIGHTS 3
#define RELL_SUM 4
#define RELL_FIRST_PART 5
#define RELL_PARTS 6
#define SWEEP_WORDS 17
#define SWEEP_CASE 0
#define SWEEP_MODEL 1
#define SWEEP_WEIGHTS 2
#define SWEEP_SLOT 3
#define SWEEP_LAST_SLOT 4
#define SWEEP_P 5
#define SWEEP_LAST_P 6
#define SWEEP_STATE 7
#define SWEEP_LAST_STATE 8
#define SWEEP_TIPS 9
#define SWEEP_SWEEPS 10
#define SWEEP_REGRAFTS 11
#define SWEEP_TEAM 12
#define SWEEP_PROBE 13
#define SWEEP_PROBES 14
#define SWEEP_LOG 15
#define SWEEP_LAST_LOG 16
#define RUN_FUNCTIONS {FN_NEWVIEW, FN_EVALUATE, FN_DERIVE, FN_EVALUATE, FN_DERIVE}

#define SESSION_MEMBERS \
  __global const int *program; /* stages and records */ \
  __global acc *state; /* see STATE */ \
  __global real *cla; /* [slot][block][category][state][lane] */ \
  __global ushort *scaler; /* [slot][block][category][lane] */ \
  __global real *pmatrix; /* [p][category][PMATRIX_ROW] */ \
  __global real *tip_pmatrix; /* [p][category][code][S] */ \
  __global real *stack; /* what local memory does not hold of stacks (stack.h) */ \
  __global acc *partial; /* [cell][chunk] */ \
  __global acc *site_lnl; /* [row][pattern], of EVALUATE_SITES and walks */ \
  __global const uchar *tips; /* [tip][pattern] */ \
  __global const real *tip_table; /* [code][S] */ \
  __global const acc *model; /* [row][MODEL_WORDS] */ \
  __global const real *model_real; /* the same in the CLAs' precision */ \
  __global const acc *series; /* of rate matrices (series.h), or r of all patterns (site_systems.h) */ \
  __global const int *series_at; /* [row][SYSTEMS]: where each begins, or NO_SERIES */ \
  __global const real *site_system; /* [block][SITE_WORDS][lane], of patterns with their own */ \
  __global const acc *weights; /* [row][pattern], 0 in the padding */ \
  __global const int *block_part; /* [block]: its part */ \
  __global const int *chunk_block; /* [chunks + 1]: the first block of each */ \
  __global const int *part_chunk; /* [parts + 1]: the first chunk of each */ \
  __global uint *sync; /* counters of work-groups: SYNC_ARRIVED, ... */ \
  __global ulong *marks; /* MARK_STARTED, MARK_ELAPSED, [work-group][FUNCTIONS] */ \
  int blocks; /* of patterns */ \
  int cla_blocks; /* of them that a CLA has */ \
  int cla_first; /* where those begin */ \
  int chunks; /* of blocks, whose sums are taken together */ \
  int chunk_blocks; /* blocks of a chunk at most */ \
  int first_chunk; /* chunks of the shard's slices before this one */ \
  int reduction_lanes; /* of a shard; 0 for whole sums */ \
  int tile_blocks; /* blocks that go through a stream together */ \
  int most_chunks; /* of a case of the program */ \
  int first_case; /* where the program's cases start */ \
  int controls; /* records in front of the lengths */ \
  int lengths; /* branch lengths in front of the sums */ \
  int stack_levels; /* of a work-group's own stack */ \
  int local_levels; /* of them in local memory */ \
  acc min_length; /* expected substitutions per site */ \
  acc max_length; /* likewise */
#define WORKER_BUFFERS \
  __global const int *restrict program, __global acc *state, __global real *cla, \
  __global ushort *scaler, __global real *pmatrix, __global real *tip_pmatrix, \
  __global real *stack, __global acc *partial, __global acc *site_lnl, \
  __global const uchar *restrict tips, __global const real *restrict tip_table, \
  __global const acc *restrict model, __global const real *restrict model_real, \
  __global const acc *restrict series, __global const int *restrict series_at, \
  __global const real *restrict site_system, __global const acc *restrict weights, \
  __global const int *restrict block_part, __global const int *restrict chunk_block, \
  __global const int *restrict part_chunk, __global uint *sync, __global ulong *marks,
#define WORKER_NUMBERS \
  int blocks, int cla_blocks, int cla_first, int chunks, int chunk_blocks, int first_chunk, \
  int reduction_lanes, int tile_blocks, int most_chunks, int first_case, int controls, \
  int lengths, int stack_levels, int local_levels, acc min_length, acc max_length,
#define SESSION_VALUES \
  program, state, cla, scaler, pmatrix, tip_pmatrix, stack, partial, site_lnl, tips, tip_table, \
  model, model_real, series, series_at, site_system, weights, block_part, chunk_block, part_chunk, \
  sync, marks, blocks, cla_blocks, cla_first, chunks, chunk_blocks, first_chunk, reduction_lanes, \
  tile_blocks, most_chunks, first_case, controls, lengths, stack_levels, local_levels, min_length, \
  max_length,
#define BEST_AT(s) ((s)->state)
#define TARGET_AT(s) (BEST_AT(s) + (s)->lengths)
#define HEADER_AT(s) (TARGET_AT(s) + (s)->lengths)
#define CONTROL_AT(s) (HEADER_AT(s) + HEADER_WORDS)
#define LENGTHS_AT(s) (CONTROL_AT(s) + (size_t)(s)->controls * CONTROL_WORDS)
#define SUMS_AT(s) (LENGTHS_AT(s) + (s)->lengths)
