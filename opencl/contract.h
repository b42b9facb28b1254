// Rendered from mltree/contract.py by `python -m mltree.contract`. Do not edit.

#define OP_PMATRICES 0
#define OP_SITES 1
#define OP_REDUCE 2
#define OP_OPTIMISE 3
#define OP_REPEAT 4
#define OP_SCAN 5
#define OP_TRIPOD 6
#define OP_WALK 7

#define DO_NEWVIEW 0
#define DO_EVALUATE 1
#define DO_DERIVE 2
#define DO_EVALUATE_SITES 3

#define STEP_DIAGONAL 0
#define STEP_TRIPOD 1

#define CONTROL_ACTIVE 0
#define CONTROL_BEST 1
#define CONTROL_STEP 2
#define CONTROL_EPSILON 3
#define CONTROL_PASSES 4
#define CONTROL_MAX_PASSES 5
#define CONTROL_ACCEPTED 6
#define CONTROL_FAR 7

#define FN_PMATRICES 0
#define FN_NEWVIEW 1
#define FN_EVALUATE 2
#define FN_DERIVE 3
#define FN_SCAN 4
#define FN_TRIPOD 5
#define FN_OPTIMISE 6
#define FN_BARRIER 7

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
#define PENDANT_LEVEL (0)
#define ROOT_LEVEL (1)
#define GPU_COLUMNS (32)
#define FUNCTIONS (8)
#define SYNC_WORDS (4)
#define TRIPOD_CELLS (10)
#define MAX_STEP_HALVINGS (12)
#define SATURATED (1)
#define MODEL_SQUARES (5)

#define STAGE_WORDS 4
#define STAGE_OP 0
#define STAGE_FIRST 1
#define STAGE_COUNT 2
#define STAGE_AUX 3

#define PMATRIX_WORDS 2
#define PMATRIX_LENGTH 0
#define PMATRIX_MODEL 1

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

#define EDGE_WORDS 5
#define EDGE_X 0
#define EDGE_Y 1
#define EDGE_LENGTH 2
#define EDGE_MODEL 3
#define EDGE_CELL 4

#define GROUP_WORDS 5
#define GROUP_KIND 0
#define GROUP_FIRST_LENGTH 1
#define GROUP_COUNT 2
#define GROUP_LNL_CELL 3
#define GROUP_FIRST_CELL 4

#define SCAN_TASK_WORDS 7
#define SCAN_TASK_PENDANT 0
#define SCAN_TASK_PENDANT_P 1
#define SCAN_TASK_ROOT 2
#define SCAN_TASK_JOIN_P 3
#define SCAN_TASK_MODEL 4
#define SCAN_TASK_FIRST_STEP 5
#define SCAN_TASK_STEPS 6

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

#define TRIPOD_WORDS 8
#define TRIPOD_NEAR 0
#define TRIPOD_FAR 1
#define TRIPOD_PENDANT 2
#define TRIPOD_NEAR_P 3
#define TRIPOD_FAR_P 4
#define TRIPOD_PENDANT_P 5
#define TRIPOD_MODEL 6
#define TRIPOD_CELL 7

#define WALK_WORDS 7
#define WALK_TIP 0
#define WALK_LENGTH 1
#define WALK_MODEL 2
#define WALK_CELL 3
#define WALK_SLOT 4
#define WALK_FIRST_STEP 5
#define WALK_STEPS 6

#define WALK_STEP_WORDS 4
#define WALK_STEP_LEFT 0
#define WALK_STEP_LEFT_P 1
#define WALK_STEP_RIGHT 2
#define WALK_STEP_RIGHT_P 3
