#!/bin/sh
# Fits a line to a file of "x y" in a federation: train.sh FILE. The model is one tensor, `line`: b and w.
# Speaks docs/reference/trainers.md on the descriptors 3 and 4.
set -eu
here=$(dirname "$0")
export LC_ALL=C

# The value of a key of the message.
field() { printf '%s\n' "$message" | sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"; }

# descend B W RATE EPOCHS: the output of descend.awk.
descend() { awk -v b="$1" -v w="$2" -v rate="$3" -v epochs="$4" -f "$here/descend.awk" "$data"; }

# write FILE B W: a safetensors file.
write() {
    header='{"line":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    {
        printf '%b' "\\0$(printf %o ${#header})\\0\\0\\0\\0\\0\\0\\0"
        printf '%s' "$header"
        # IEEE 754, little-endian, as octal escapes. The values are normal numbers or 0.
        printf '%b' "$(printf '%s\n' "$2" "$3" | awk '{
            x = $1 < 0 ? -$1 : $1; bits = 0
            if (x > 0) {
                for (exponent = 127; x >= 2; exponent++) x /= 2
                for (; x < 1; exponent--) x *= 2
                bits = ($1 < 0 ? 2147483648 : 0) + exponent * 8388608 + int((x - 1) * 8388608 + 0.5)
            }
            for (i = 0; i < 4; i++) { printf "\\0%o", bits % 256; bits = int(bits / 256) }
        }')"
    } >"$folder/$1"
}

data=$1
while read -r message <&3; do
    case $message in
    *'"type":"start"'*)
        folder=$(field folder)
        write hello.safetensors 0 0
        printf '%s\n' '{"type":"hello","version":1,"evaluates":true,"weights":"hello.safetensors","tensors":[{"name":"line","dtype":"F32","shape":[2]}]}' >&4
        ;;
    *'"type":"fit"'*)
        # The values are the last 8 bytes of the file.
        set -- $(tail -c 8 "$folder/$(field weights)" | od -An -t f4)
        set -- $(descend "$1" "$2" "$(field learning_rate)" "$(field epochs)")
        write "$(field result)" "$1" "$2"
        printf '{"type":"fitted","examples":%d,"loss":%s}\n' "$4" "$3" >&4
        ;;
    *'"type":"evaluate"'*)
        set -- $(tail -c 8 "$folder/$(field weights)" | od -An -t f4)
        set -- $(descend "$1" "$2" 0 1)
        printf '{"type":"evaluated","examples":%d,"loss":%s,"metrics":{"slope":%s}}\n' "$4" "$3" "$2" >&4
        ;;
    *'"type":"bye"'*) exit 0 ;;
    esac
done
