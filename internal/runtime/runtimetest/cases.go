package runtimetest

import (
	"maps"
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Config describes the runtime under test. The zero Config uses boxes of the mem driver and
// sessions of the runtime native.
type Config struct {
	// New makes a runtime as a starting server does: over the scripted model, with at least the
	// tools Bash {"command"} and Read {"file_path"}.
	New func(t *testing.T) runtime.Runtime
	// InBox is true if the agent's loop runs in the session's box and stores its own conversation
	// there.
	InBox bool
	// Runtime is the session's runtime name; empty means native.
	Runtime string
	// Boxes returns a driver and the directory of a session; nil means the mem driver.
	Boxes func(t *testing.T) (driver sandbox.Driver, dir string)
	// UID is the first of the two user ids that the box has on the host, for a driver that needs them.
	UID uint32
	// Accepted handles the connections that listeners of the box accept.
	Accepted sandbox.Handler
	// Told reports whether the server ever sent the model this text; nil if the test cannot know that.
	Told func(text string) bool
	// Points is the largest number of points at which the case HZ12_ServerDies kills a server, for runtimes that are
	// slow; 0 and 1 mean all points.
	Points int
	// Lost is the text that the agent writes before its new answer, if the connection to its model broke in
	// the middle of an answer and it asked the model again; empty if it writes none.
	Lost string
	// Exempt maps each case that does not apply to this runtime to the reason.
	Exempt map[string]string
}

// Where says to which runtimes a case applies: those whose agent loop runs in the server, those whose loop runs in the
// box, or both.
type Where string

// The values of Where: a case applies to all runtimes, only to those whose agent loop runs in the server, or only to
// those whose agent loop runs in the box.
const (
	Anywhere Where = "anywhere"
	InServer Where = "in the server"
	InBox    Where = "in the box"
)

// Case is one promise that a runtime has to fulfil, with its test.
type Case struct {
	Name string
	// Says describes the promise in words.
	Says  string
	Where Where
	// Why says why the case does not apply to runtimes whose agent loop runs elsewhere.
	Why  string
	test func(*testing.T, Config)
}

// Cases returns the contract, in the order of the table in the documentation.
func Cases() []Case { return cases }

const (
	ownTools  = "the CLI runs its tools itself: boxd sees one process"
	ownCalls  = "the CLI asks its model by itself"
	itsServer = "no part of the agent is in the box"
)

var cases = []Case{
	{"Talks", "A turn without tools answers; of it only what a crash would need is recorded, and it starts no box", InServer, "an agent in the box needs one, and its output is recorded as it comes", testTalks},
	{"Answers", "A turn without tools answers, and the answer is in the log when it is over", Anywhere, "", testAnswers},
	{"Remembers", "The next turn knows every turn before, those that failed or were interrupted too; so does another server", Anywhere, "", testRemembers},
	{"Works", "Tools run in the order in which the model asked, each is answered", Anywhere, "", testWorks},
	{"IntentBeforeAct", "No tool runs before its intent is durable", Anywhere, "", testIntentBeforeAct},
	{"ReleaseAfterCommit", "The box forgets a call when its outcome is durable", InServer, ownTools, testReleaseAfterCommit},
	{"Denies", "A tool that is denied does not run; the model reads why", Anywhere, "", testDenies},
	{"Fails", "A model's error fails the turn with its kind; the session stays usable", Anywhere, "", testFails},
	{"InterruptKills", "An interrupt ends the running call, each tool use has a result, and the next turn works", Anywhere, "", testInterruptKills},
	{"InterruptOfACutOffCall", "An interrupt after a crash ends the call that a former server started", Anywhere, "", testInterruptCutOff},
	{"Steers", "A message that joins the turn is heard in it", Anywhere, "", testSteers},
	{"SteeredAtTheEnd", "A message that comes with the end of a turn is answered in it", InServer, "an agent in the box looks for messages until its turn is over, which the case Steers covers", testSteeredAtTheEnd},
	{"EndedTurnRunAgain", "A turn whose answer is in the log is not asked again", InServer, "an agent's answers are in the log before the end of its turn is", testEndedRunAgain},
	{"BoxDiesMidCall", "A call that dies with its box is unknown and never made again; the turn goes on", InServer, "an agent in the box dies with the box, which the case BoxDies covers", testBoxDiesMidCall},
	{"RecordErrorEndsTheTurn", "A call that cannot be recorded is not made", Anywhere, "", testRecordError},
	{"UnknownTurn", "A turn that is not under way in the log is an error", Anywhere, "", testUnknownTurn},
	{"HZ4_CrashAtEveryPoint", "Killed at any point, the next server ends the turn; nothing runs twice, nothing is lost", InServer, ownTools, testCrashEverywhere},
	{"HZ4_AnyPrefixGoesOn", "Any prefix of a log goes on to the end of the turn", InServer, "the rest of the turn is in the agent in the box", testAnyPrefixGoesOn},
	{"HZ4_CrashWhileRunning", "Killed while a tool runs, the next server gets its outcome", InServer, ownTools, testCrashWhileRunning},
	{"HZ4_CrashWithTheBox", "When server and box are killed, the calls in progress become unknown, and no others", InServer, ownTools, testCrashWithTheBox},
	{"HZ17_ReissuedCallIsNoted", "Deltas of an answer that is asked for again are voided by a notice", InServer, ownCalls, testReissueNotice},
	{"HZ12_ServerDies", "Killed at any record, the next server goes on with the living agent: each use is answered, each effect there once", InBox, itsServer, testServerDies},
	{"BoxDies", "Killed with the box in the middle of a turn, the session goes on: no effect twice, and every completed turn is known", InBox, itsServer, testBoxDies},
	{"BoxStops", "After the end of its box an agent comes back with the whole conversation, and the receipt says how", InBox, itsServer, testBoxStops},
	{"StateGone", "After the loss of its own state an agent gets the whole conversation, and the receipt says how", InBox, itsServer, testStateGone},
	{"ToldWhatItMissed", "An agent gets the turns that another runtime ran in its session, and only those", InBox, "the runtime in the server knows only the log", testToldWhatItMissed},
}

// Run runs every case that applies to a runtime, according to the case's Where and the Config's InBox. Config.Exempt
// excludes further cases, each with its reason.
func Run(t *testing.T, cfg Config) {
	t.Helper()
	exempt := maps.Clone(cfg.Exempt)
	for _, c := range cases {
		if c.Where == InServer && cfg.InBox || c.Where == InBox && !cfg.InBox {
			continue
		}
		if why := exempt[c.Name]; why != "" {
			delete(exempt, c.Name)
			// the script scripts/runtimes reads the line that the next call logs
			t.Logf("exempt: %s/%s: %s", t.Name(), c.Name, why)
			continue
		}
		t.Run(c.Name, func(t *testing.T) { c.test(t, cfg) })
	}
	for _, name := range slices.Sorted(maps.Keys(exempt)) {
		t.Errorf("there is no case %s to be exempt from", name)
	}
}
