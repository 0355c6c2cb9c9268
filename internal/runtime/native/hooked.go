package native

import (
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/loop"
)

// hook adds the texts of a hook's run: texts about a message of the user to that message, texts about tool calls after
// their results, and all others before the next message.
func (h *history) hook(a *conversation.Aside) {
	ran := *a.Hook
	texts := hook.Texts(ran)
	switch {
	case ran.MessageSeq != 0 && h.reprompt(ran):
	case !h.live || a.Turn != h.turn:
		h.later(texts)
	case h.open != nil:
		h.open.hooked = append(h.open.hooked, texts...)
	default:
		h.hear(texts)
	}
}

// reprompt replaces the text of the user's message that a hook ran for by the one that the hook made of it. It returns
// false if that message belongs to an earlier turn. Blocks that an earlier call of read returned are copied, not changed.
func (h *history) reprompt(ran holdfast.HookRan) bool {
	if i := slices.IndexFunc(h.steers, func(j loop.Joined) bool { return j.Seq == ran.MessageSeq }); i >= 0 {
		h.steers[i].Text = hook.Prompted(h.steers[i].Text, ran)
		return true
	}
	i := slices.IndexFunc(h.told, func(s spot) bool { return s.seq == ran.MessageSeq })
	if i < 0 {
		return false
	}
	m := &h.messages[h.told[i].message]
	m.Blocks = slices.Clone(m.Blocks)
	b := &m.Blocks[h.told[i].block]
	b.Text = hook.Prompted(b.Text, ran)
	if h.told[i].message < h.counted.Messages {
		h.counted = model.Counted{} // the counted messages have another size now
	}
	return true
}

// hear adds texts of hooks to the end of the messages.
func (h *history) hear(texts []string) {
	for _, t := range texts {
		h.append(model.Block{Type: model.Text, Text: t})
	}
}

// later stores texts of hooks that ran outside the turn. They go before the next message of the user.
func (h *history) later(texts []string) { h.heard = append(h.heard, texts...) }
