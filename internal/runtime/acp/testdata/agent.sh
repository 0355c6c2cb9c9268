#!/bin/bash
# An agent of the protocol that does what a word in its prompt says. What it was told
# lies in /workspace/prompts; $KEPT/count is how many prompts it remembers.
KEPT=${KEPT:-/home/agent/.scripted}
say() { printf '%s\n' "$1"; }
answer() { say "{\"jsonrpc\":\"2.0\",\"id\":$1,\"result\":$2}"; }
update() { say "{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"sessionId\":\"${2:-sess}\",\"update\":$1}}"; }
text() { update "{\"sessionUpdate\":\"agent_message_chunk\",\"messageId\":\"m\",\"content\":{\"type\":\"text\",\"text\":\"$1\"}}"; }
call() { update "{\"sessionUpdate\":\"tool_call\",\"toolCallId\":\"$1\",\"title\":\"bash\",\"kind\":\"execute\",\"status\":\"pending\",\"rawInput\":{\"command\":\"$2\"}}"; }
over() { update "{\"sessionUpdate\":\"tool_call_update\",\"toolCallId\":\"$1\",\"status\":\"${2:-completed}\",\"rawOutput\":\"out of $1\"}"; }
ask() { say "{\"jsonrpc\":\"2.0\",\"id\":\"p-$1\",\"method\":\"session/request_permission\",\"params\":{\"sessionId\":\"sess\",\"toolCall\":{\"toolCallId\":\"$1\"},\"options\":[${2:-{\"optionId\":\"y\",\"kind\":\"allow_once\"\},{\"optionId\":\"n\",\"kind\":\"reject_once\"\}}]}}"; }
askfor() { say "{\"jsonrpc\":\"2.0\",\"id\":\"p-$1\",\"method\":\"session/request_permission\",\"params\":{\"sessionId\":\"sess\",\"toolCall\":{\"toolCallId\":\"$2\",$3},\"options\":[{\"optionId\":\"y\",\"kind\":\"allow_once\"},{\"optionId\":\"n\",\"kind\":\"reject_once\"}]}}"; }
edit() { echo "\"kind\":\"edit\",\"title\":\"edit\",\"rawInput\":{\"file_path\":\"/workspace/$1\",\"old_string\":\"a\",\"new_string\":\"b\"}"; }
count() { cat "$KEPT/count" 2>/dev/null || echo 0; }
did() { mkdir -p "$KEPT"; echo $(($(count) + 1)) >"$KEPT/count"; }

echo start >>/workspace/starts
while IFS= read -r line; do
	id=; [[ $line =~ \"id\":([0-9]+) ]] && id=${BASH_REMATCH[1]}
	case $line in
	*'"method":"initialize"'*)
		case $BAD in
		version) answer "$id" '{"protocolVersion":7}' ;;
		silent) : ;;
		exit) echo "no such thing" >&2; exit 3 ;;
		*) answer "$id" "{\"protocolVersion\":1,\"agentCapabilities\":{\"loadSession\":${LOADS:-true}},\"agentInfo\":{\"name\":\"s\",\"version\":\"7.1\"}}" ;;
		esac ;;
	*'"method":"session/new"'*)
		case $BAD in
		unnamed) answer "$id" '{}' ;;
		refused) say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32000,\"message\":\"log in\"}}" ;;
		*) rm -rf "$KEPT"; mkdir -p "$KEPT"; answer "$id" '{"sessionId":"sess","modes":{"currentModeId":"ask","availableModes":[{"id":"ask"},{"id":"plan"}]}}' ;;
		esac ;;
	*'"method":"session/load"'*)
		if [ -e /workspace/noload ]; then say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32603,\"message\":\"cannot\"}}"; continue; fi
		for ((i = 1; i <= $(count); i++)); do
			update "{\"sessionUpdate\":\"user_message_chunk\",\"messageId\":\"u$i\",\"content\":{\"type\":\"text\",\"text\":\"t\"}}"
			update '{"sessionUpdate":"agent_message_chunk","messageId":"a","content":{"type":"text","text":"replayed"}}'
		done
		answer "$id" '{}' ;;
	*'"method":"session/set_mode"'*)
		echo "$line" >>/workspace/modes; answer "$id" '{}' ;;
	*'"method":"session/cancel"'*)
		echo cancel >>/workspace/cancels
		[ -n "$running" ] && [ ! -e /workspace/deaf ] && { did; answer "$running" '{"stopReason":"cancelled"}'; running=; } ;;
	*'"method":"session/prompt"'*)
		printf '%s\n' "$line" >>/workspace/prompts
		running=$id
		case ${line##*conversation_history} in
		*FURTHER*) askfor 1 t1 "$(edit a)"; IFS= read -r r; printf '%s\n' "$r" >>/workspace/answered
			for more in "$(edit a)" '"locations":[{"path":"/workspace/b"}]' '"rawInput":{"path":"/workspace/c"}' '"content":[{"type":"diff","path":"/workspace/a","oldText":"a","newText":"secret"}]'; do
				askfor 2 t1 "$more"; IFS= read -r r; printf '%s\n' "$r" >>/workspace/answered
			done
			over t1; text done; did; answer "$id" '{"stopReason":"end_turn"}' ;;
		*MEANWHILE*) askfor 1 t1 "$(edit a)"; while [ ! -e /workspace/deciding ]; do sleep 0.02; done
			update '{"sessionUpdate":"tool_call_update","toolCallId":"t1","locations":[{"path":"/workspace/b"}]}'; text seen
			IFS= read -r r; printf '%s\n' "$r" >/workspace/answered; over t1 failed; text done; did; answer "$id" '{"stopReason":"end_turn"}' ;;
		*SAMEID*) update '{"sessionUpdate":"tool_call","toolCallId":"t1","title":"read","kind":"read","rawInput":{"filePath":"/workspace/README"}}'; i=0
			for about in '"kind":"other","title":"external_directory"' '"kind":"read","title":"README"' '"kind":"execute","title":"git push","rawInput":{"command":"git push"}' '"title":"README"'; do
				askfor $((++i)) t1 "$about"; IFS= read -r r; printf '%s\n' "$r" >>/workspace/answered
				update '{"sessionUpdate":"tool_call_update","toolCallId":"t1","kind":"execute"}'
			done
			over t1; text done; did; answer "$id" '{"stopReason":"end_turn"}' ;;
		*WORKDIR*) askfor 1 t1 '"kind":"execute","title":"bash","rawInput":{"command":"./ci/test.sh",'"$FIELDS"'}'
			IFS= read -r r; printf '%s\n' "$r" >>/workspace/answered; over t1; text done; did; answer "$id" '{"stopReason":"end_turn"}' ;;
		*WORDY*) [[ $line =~ WORDY\ ([0-9]+) ]]; call t1 "$(head -c ${BASH_REMATCH[1]} /dev/zero | tr '\0' x); rm all"; ask t1; IFS= read -r r; printf '%s\n' "$r" >/workspace/answered; over t1; text done; did; answer "$id" '{"stopReason":"end_turn"}' ;;
		*CROWD*) for ((i = 0; i < 1100; i++)); do update "{\"sessionUpdate\":\"tool_call\",\"toolCallId\":\"c$i\",\"title\":\"x\"}"; done; IFS= read -r r ;;
		*FUTURE*) for i in 1 2 3 4 5 6 7 8 9 10 11 12; do update '{"sessionUpdate":"from_the_future","n":'$i'}'; done
			update '{"sessionUpdate":"usage_update"}'; text fine; did; answer "$id" '{"stopReason":"end_turn"}' ;;
		*GARBAGE*) say 'Debugger listening on ws://'; say '{"jsonrpc":'; say '[]'; say '{}'; say ''; text fine; did; answer "$id" '{"stopReason":"end_turn"}' ;;
		*FLOOD*) for ((i = 0; i < 60; i++)); do say "rubbish $i"; done; did; answer "$id" '{"stopReason":"end_turn"}' ;;
		*HUGE*) head -c 5000000 /dev/zero | tr '\0' x; say ''; answer "$id" '{"stopReason":"end_turn"}' ;;
		*HALF*) text 'half of'; printf '{"jsonrpc":"2.0","id":'; exit 1 ;;
		*METHODS*) say '{"jsonrpc":"2.0","id":"x1","method":"fs/read_text_file","params":{}}'
			IFS= read -r r; printf '%s\n' "$r" >/workspace/refused
			say '{"jsonrpc":"2.0","method":"x/y","params":[]}'; say '{"jsonrpc":"2.0","id":"x2","method":"session/request_permission","params":{"toolCall":7}}'
			IFS= read -r r; printf '%s\n' "$r" >>/workspace/refused
			text fine; did; answer "$id" '{"stopReason":"end_turn"}' ;;
		*ORDER*) answer 4711 '{"stopReason":"end_turn"}'; answer 1 '{}'; answer '"x"' '{}'; update '{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"not mine"}}' other
			update '{"sessionUpdate":7}'; update '{"sessionUpdate":"tool_call"}'; update '{"sessionUpdate":"from_the_future"}'
			text mine; did; answer "$id" '{"stopReason":"end_turn"}' ;;
		*DIESONCE*) if [ ! -e /workspace/died ]; then touch /workspace/died; exit 9; fi; text again; did; answer "$id" '{"stopReason":"end_turn"}' ;;
		*DIES*) exit 9 ;;
		*MIDTOOL*) text 'I begin'; call t1 'sleep 1'; ask t1; IFS= read -r r; exit 9 ;;
		*UNASKED*) call t1 'echo x'; over t1; text done; did; answer "$id" '{"stopReason":"end_turn"}' ;;
		*ALWAYS*) call t1 'echo x'; ask t1 '{"optionId":"a","kind":"allow_always"},{"optionId":"n","kind":"reject_always"}'; IFS= read -r r; printf '%s\n' "$r" >/workspace/answered
			over t1 failed; text done; did; answer "$id" '{"stopReason":"end_turn"}' ;;
		*TWICE*) call t1 'echo x'; ask t1; IFS= read -r r; ask t1; IFS= read -r r; printf '%s\n' "$r" >/workspace/answered; over t1; text done; did; answer "$id" '{"stopReason":"end_turn"}' ;;
		*TOOL*) call t1 'echo x'; call t2 'echo y'; ask t1; IFS= read -r r; printf '%s\n' "$r" >>/workspace/answered; over t1
			ask t2; IFS= read -r r; over t2; text done; did; answer "$id" '{"stopReason":"end_turn"}' ;;
		*LATE*) call t1 'echo x'; ask t1; IFS= read -r r; over t1; call t1 'rm -rf x'; ask t1; IFS= read -r r; printf '%s\n' "$r" >/workspace/answered; text done; did; answer "$id" '{"stopReason":"end_turn"}' ;;
		*OPEN*) call t1 'echo x'; ask t1; IFS= read -r r; text done; did; answer "$id" '{"stopReason":"max_tokens"}' ;;
		*LONG*) for ((i = 0; i < 4000; i++)); do text 'a text that is to fill up the spool of this call, piece by piece by piece by piece'; done; did; answer "$id" '{"stopReason":"end_turn"}' ;;
		*PLAN*) update '{"sessionUpdate":"plan","entries":[{"content":"one","status":"completed"},{"content":"two","status":"pending"}]}'; text done; did; answer "$id" '{"stopReason":"end_turn"}' ;;
		*ERROR*) say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32603,\"message\":\"the model said no\"}}" ;;
		*WAIT*) text waiting; continue ;;
		*) did; text "prompt $(count)"; answer "$id" '{"stopReason":"end_turn","usage":{"inputTokens":3,"outputTokens":4}}' ;;
		esac
		running= ;;
	esac
done
