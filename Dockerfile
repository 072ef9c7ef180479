# Précis with CUDA: PyTorch's wheels for Linux bring the CUDA libraries, the host its driver and nvidia-container-toolkit.
#
#   docker build -t precis .
#   docker run --rm --gpus all -v "$PWD:/work" precis fit --config pointer_generator/docstrings --run_dir runs/first
FROM python:3.12-slim-bookworm

# torch.compile and Triton call a C++ compiler when a model first runs; versions are those of the base image's release.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/precis
COPY . .
RUN pip install --no-cache-dir --constraint constraints.txt torch \
    && pip install --no-cache-dir --constraint constraints.txt ".[minilm,lora,slurm,bleu,bertscore]"

# Runs belong to an ordinary user; documents and features stay in a volume between containers.
RUN useradd --create-home --uid 1000 precis \
    && mkdir --parents /work /cache \
    && chown precis:precis /work /cache
USER 1000
ENV PRECIS_CACHE=/cache
VOLUME ["/cache"]
WORKDIR /work
ENTRYPOINT ["precis"]
CMD ["--help"]
