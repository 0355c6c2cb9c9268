package holdfast

import (
	"maps"
	"slices"
)

// word is a type whose values are a fixed list of words.
type word interface {
	AgentHealth | ApprovalScope | ApprovalState | BoxState | CheckpointReason | ExitClass | FilesState |
		Kind | Role | SendMode | Tier | Trust | TurnStatus |
		Mode | Scope | Status | EventType
}

// Words lists the values of a type in the order in which the documentation lists them; the
// values of Kind are sorted. The caller may change the list.
func Words[W word]() []W {
	var w W
	var list any
	switch any(w).(type) {
	case AgentHealth:
		list = []AgentHealth{HealthCurrent, HealthQuarantined, HealthLeft}
	case ApprovalScope:
		list = []ApprovalScope{ScopeOnce, ScopeSession, ScopeWorkspace}
	case ApprovalState:
		list = []ApprovalState{ApprovalPending, ApprovalAllowed, ApprovalDenied, ApprovalExpired}
	case BoxState:
		list = []BoxState{BoxStarting, BoxRunning, BoxIdle, BoxFrozen, BoxStopped}
	case CheckpointReason:
		list = []CheckpointReason{CheckpointTurn, CheckpointDirect, CheckpointStop, CheckpointLate, CheckpointKept, CheckpointFork, CheckpointFound}
	case ExitClass:
		list = []ExitClass{ExitOK, ExitExit, ExitSignal, ExitTimeout, ExitOOM, ExitPids, ExitError, ExitCanceled}
	case FilesState:
		list = []FilesState{FilesKept, FilesRestored, FilesEmpty, FilesLost}
	case Kind:
		list = slices.Sorted(maps.Keys(kinds))
	case Role:
		list = []Role{RoleUser, RoleAssistant, RoleThinking, RoleTool, RoleResult, RoleNotice}
	case SendMode:
		list = []SendMode{SendQueue, SendSteer, SendInterrupt}
	case Tier:
		list = []Tier{TierLive, TierOwn, TierRebuilt, TierInjected, TierFresh, TierPending}
	case Trust:
		list = []Trust{Trusted, Untrusted}
	case TurnStatus:
		list = []TurnStatus{TurnQueued, TurnRunning, TurnCompleted, TurnFailed, TurnInterrupted}
	case Mode:
		list = []Mode{ModeDefault, ModeAcceptEdits, ModeBypassPermissions, ModePlan, ModeDontAsk, ModeAuto}
	case Scope:
		list = []Scope{ScopeRead, ScopeWrite, ScopeAdmin}
	case Status:
		list = []Status{StatusStarting, StatusActive, StatusPaused, StatusError, StatusEnded}
	case EventType:
		list = []EventType{
			EventSessionCreated, EventSessionUpdated, EventSessionPaused,
			EventSessionResumed, EventSessionEnded, EventSessionError,
			EventSessionRewound, EventSessionForked, EventSessionTrashed, EventSessionUntrashed,
			EventTurnQueued, EventTurnStarted, EventTurnCompleted,
			EventTurnFailed, EventTurnInterrupted,
			EventMessageUser, EventMessageAssistant, EventThinking,
			EventToolRequested, EventToolAllowed, EventToolDenied,
			EventToolStarted, EventToolFinished, EventToolUnknown,
			EventBoxQueued, EventBoxStarted, EventBoxStopped,
			EventBoxFrozen, EventBoxOOM, EventBoxPids, EventBoxLost,
			EventAgentStarted, EventAgentMirrored, EventAgentQuarantined,
			EventEgressAllowed, EventEgressDenied,
			EventModelRequest, EventUsage, EventNotice, EventDamaged, EventFilesImported,
			EventSnapshotTaken, EventSnapshotFailed, EventCheckpointHeld, EventCheckpointReleased,
			EventApprovalAsked, EventApprovalAnswered, EventApprovalExpired, EventRulesChanged, EventHookRan,
			DeltaText, DeltaThinking, DeltaToolOutput,
		}
	}
	return list.([]W)
}
