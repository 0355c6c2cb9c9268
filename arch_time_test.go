package holdfast_test

import (
	"go/ast"
	"go/token"
	"go/types"
	"strconv"
	"strings"
	"testing"
	"time"
)

// leastBound is the shortest time within which a test may expect something to happen: a
// busy machine is often a second late.
const leastBound = 2 * time.Second

// TestBoundsOfTestsAreGenerous refuses times below two seconds in tests. Exempt are the
// fake clock of a synctest bubble, the interval of a ticker, and the functions of
// shortTimes, each for its reason.
func TestBoundsOfTestsAreGenerous(t *testing.T) {
	used, exempt := map[string]bool{}, map[string]bool{}
	for _, keys := range shortTimes {
		for _, key := range keys {
			exempt[key] = true
		}
	}
	for _, s := range sources(t) {
		if !s.test && !s.suite() {
			continue
		}
		for _, d := range s.ast.Decls {
			name := "package"
			if f, ok := d.(*ast.FuncDecl); ok {
				name = f.Name.Name
			}
			shortIn(d, func(d time.Duration, pos token.Pos) {
				key := s.name + " " + name
				if used[key] = true; !exempt[key] {
					t.Errorf("%s:%d: %s in %s: a busy machine takes longer: wait for a condition, use synctest, or give it %s and more", s.name, s.line(pos), d, name, leastBound)
				}
			})
		}
	}
	for key := range exempt {
		if !used[key] {
			t.Errorf("shortTimes: %s has no short time: take it off the list", key)
		}
	}
}

var units = map[string]time.Duration{
	"Nanosecond": time.Nanosecond, "Microsecond": time.Microsecond, "Millisecond": time.Millisecond, "Second": time.Second,
}

// fakes are the calls in which time is fake, or is an interval between two looks.
var fakes = map[string]bool{"synctest.Test": true, "bubble": true, "time.NewTicker": true, "pause": true}

// shortIn calls found for each constant time below leastBound in a declaration.
func shortIn(n ast.Node, found func(time.Duration, token.Pos)) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			switch name := types.ExprString(n.Fun); {
			case fakes[name]:
				return false
			case strings.HasSuffix(name, ".Add"), strings.HasSuffix(name, ".Truncate"):
				return false // a time that is compared or that a test's clock shows
			}
		case *ast.BinaryExpr:
			if d, ok := constant(n); ok {
				if d < leastBound && d > 0 {
					found(d, n.Pos())
				}
				return false
			}
		case *ast.SelectorExpr:
			if d, ok := constant(n); ok && d < leastBound {
				found(d, n.Pos())
			}
			return false
		}
		return true
	})
}

// constant returns the value of a unit of time, or of a multiple of one. A unit that is
// multiplied or divided by a variable counts as long.
func constant(e ast.Expr) (time.Duration, bool) {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok && x.Name == "time" {
			d, ok := units[e.Sel.Name]
			return d, ok
		}
	case *ast.BinaryExpr:
		if e.Op != token.MUL && e.Op != token.QUO {
			return 0, false
		}
		for _, pair := range [2][2]ast.Expr{{e.X, e.Y}, {e.Y, e.X}} {
			unit, ok := constant(pair[1])
			if !ok {
				continue
			}
			if l, ok := pair[0].(*ast.BasicLit); ok && e.Op == token.MUL {
				if n, err := strconv.ParseFloat(l.Value, 64); err == nil {
					return time.Duration(n * float64(unit)), true
				}
			}
			return leastBound, true
		}
	}
	return 0, false
}

// shortTimes are the functions that need a short time in a test, by the reason why a slow
// machine does not fail them.
var shortTimes = map[string][]string{
	"it ends a wait of the product, and the test waits for that end": {
		"internal/app/questions_linux_test.go TestHZ15_AQuestionOutlivesItsBox",
		"internal/app/questions_linux_test.go TestHZ15_AnACPQuestionOutlivesItsBox",
		"agent/model/anthropic/anthropic_test.go TestStallIsGivenUp",
		"agent/model/openai/openai_test.go TestStallIsGivenUp",
		"client/patience_test.go TestHZ23_NoRequestWaitsForAMuteServer",
		"hook/command_test.go TestHTTPHooks",
		"hook/hook_test.go TestSDKH11_FailuresStayTheirOwn",
		"internal/boxd/ops_test.go TestGateHoldsBackStarts",
		"internal/driver/mem/faults_test.go TestHangHello",
		"internal/pool/still_test.go TestStillEndsInTime",
		"internal/pool/still_test.go TestStillHoldsTheBox",
		"internal/egress/answer_test.go TestASilentProviderIsGivenUp",
		"internal/engine/approval_test.go TestApprovalAnswerAgainstExpiry",
		"internal/engine/approval_test.go TestApprovalExpiresToDeny",
		"internal/engine/drain_test.go TestCloseDoesNotWaitForADeafRuntime",
		"internal/engine/hooks_test.go listening",
		"internal/engine/layers_test.go layered",
		"internal/engine/update_rules_test.go calledBack",
		"internal/httpapi/terminal_test.go TestTerminalPingsFindADeadClient",
		"internal/store/sqlite/db/write_test.go TestALockOfAnotherProgramIsNotFatal",
		"sandbox/box_test.go TestHZ10_DialEndsByItsContext",
		"sandbox/box_test.go TestHZ10_SilenceIsNotDeath",
		"sandbox/sandboxtest/adopt.go orphanStops",
	},
	"nothing may happen within it; a slow machine makes that likelier": {
		"internal/boxd/listen_test.go TestHZ12_ProxyConnectionsWaitForAServer",
		"internal/boxd/spool_test.go TestSpoolCloseEndsStall",
	},
	"the pool acts when it has passed; the test waits for that or works against it": {
		"internal/driver/host/pool_test.go TestPoolOverRealProcesses",
		"internal/driver/host/pool_test.go newPool",
		"internal/engine/approval_test.go TestHZ15_WaitingHoldsNoBox",
		"internal/pool/idle_test.go TestHZ15_PoolStopNamesProcessesBeforeTheAct",
		"internal/pool/idle_test.go TestPoolSparesRunningCalls",
		"internal/pool/start_test.go TestPoolUnderFire",
	},
	"it is the interval between two looks or two tries": {
		"agent/tool/builtin/builtin_test.go eventually",
		"internal/loop/world_test.go loop",
		"internal/app/walls_linux_test.go pollFast",
		"internal/boxd/exec_io_test.go TestExecPTY",
		"internal/boxd/jail/forker_test.go TestFileThreads",
		"internal/boxd/parts_test.go TestGateHoldsTheHandsWhenIdle",
		"internal/boxd/parts_test.go TestStdinStallsTheClientNotTheServer",
		"internal/driver/local/main_test.go sweep",
		"internal/driver/local/walls_more_test.go settled",
		"internal/engine/account_test.go budgeted",
		"internal/httpapi/sse_test.go TestExecStopsWhenItsClientLeaves",
		"internal/runtime/native/native_test.go config",
		"internal/store/sqlite/db/space_linux_test.go TestHZ17_FullDisk",
		"internal/store/sqlite/db/space_test.go TestHZ17_SpaceComesBack",
		"sandbox/box_test.go TestReleasesAreGathered",
	},
	"it is a value that is read or compared, or a clock of the test moves by it": {
		"agent/model/scripted/parse_test.go TestParseTakesEveryKey",
		"arch_time_test.go package",
		"cmd/holdfast/progress_test.go TestProgressIsCalmAndLeavesNothing",
		"hook/hook_test.go TestSDKH10_Timeouts",
		"internal/boxd/parts_test.go TestMillisAreBounded",
		"internal/engine/watchdog_test.go package",
		"internal/httpapi/body/patience_test.go TestTricklingSenderIsCut",
		"internal/httpapi/guard/limits_test.go TestDefaultLimitIsAboveTheGates",
		"internal/webhook/deliver_test.go TestAFailureIsTriedAgain",
		"policy/bounds_test.go TestNoTimeIsADenialInEveryStage",
	},
	"something comes later by it, and how much later is not judged": {
		"client/events_test.go TestFollowWaitsForAServerThatComesBack",
		"internal/app/budget_linux_test.go TestHZ24_AnAbsurdCallOpensNoBudget",
		"internal/store/sqlite/db/lock_test.go TestHZ3_ALockThatADeadServerLeftIsWaitedFor",
	},
}
