package native

import (
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/loop"
)

// hook adds the texts of a hook's run: texts about a prompt to the prompt, texts about tool calls after their
// results, and all others before the next message.
func (h *history) hook(a *conversation.Aside) {
	ran := *a.Hook
	texts := hook.Texts(ran)
	switch {
	case !h.live || a.Turn != h.turn:
		h.later(texts)
	case ran.MessageSeq != 0:
		i := slices.IndexFunc(h.steers, func(j loop.Joined) bool { return j.Seq == ran.MessageSeq })
		if i >= 0 {
			h.steers[i].Text = hook.Prompted(h.steers[i].Text, ran)
		} else if ran.MessageSeq == h.prompt {
			h.reprompt(ran)
		}
	case h.open != nil:
		h.open.hooked = append(h.open.hooked, texts...)
	default:
		h.hear(texts)
	}
}

// reprompt replaces the text of the user's newest message by the one that hooks made of it. Blocks that an
// earlier call of read returned are copied, not changed.
func (h *history) reprompt(ran holdfast.HookRan) {
	n := len(h.messages)
	if n == 0 || h.messages[n-1].Role != model.User {
		return
	}
	blocks := slices.Clone(h.messages[n-1].Blocks)
	last := len(blocks) - 1
	blocks[last].Text = hook.Prompted(blocks[last].Text, ran)
	h.messages[n-1].Blocks = blocks
}

// hear adds texts of hooks to the end of the messages.
func (h *history) hear(texts []string) {
	for _, t := range texts {
		h.append(model.Block{Type: model.Text, Text: t})
	}
}

// later stores texts of hooks that ran outside the turn. They go before the next message of the user.
func (h *history) later(texts []string) { h.heard = append(h.heard, texts...) }
