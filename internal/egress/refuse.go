package egress

import (
	"encoding/json"
	"net/http"
)

// refuseMessages writes an error as the Messages API does.
func refuseMessages(w http.ResponseWriter, status int, kind, message string) {
	type detail struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	}
	write(w, status, struct {
		Type  string `json:"type"`
		Error detail `json:"error"`
	}{"error", detail{kind, message}})
}

// refuseChat writes an error as chat completions do.
func refuseChat(w http.ResponseWriter, status int, kind, message string) {
	type detail struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	write(w, status, struct {
		Error detail `json:"error"`
	}{detail{Message: message, Type: kind}})
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that went away is normal
}

// errorKind and errorText read a provider's error document; a web page is none.
func errorKind(raw []byte) string { kind, _ := errorOf(raw); return kind }
func errorText(raw []byte) string { _, text := errorOf(raw); return text }

func errorOf(raw []byte) (kind, text string) {
	var e struct {
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
	}
	_ = json.Unmarshal(raw, &e)
	return e.Error.Type, e.Error.Message
}
